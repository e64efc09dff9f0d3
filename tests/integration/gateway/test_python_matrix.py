"""The official client for Python, unchanged, on TernMQ: what users do, and what is refused."""

import time

import pytest

import ternmq
from tests.integration.gateway.clients import ClientFactory, ClientRefused, GatewayServer
from tests.integration.processes import Node, tern
from tests.waiting import wait_until

Shown = dict[str, str]


def topic_of(node: Node, name: str) -> str:
    """A topic of this test alone."""
    assert tern("topic", "create", name, url=node.url).code == 0
    return name


def test_a_message_comes_as_it_was_sent(
    rocket_node: Node, gateway: GatewayServer, rocket: ClientFactory
) -> None:
    topic = topic_of(rocket_node, "as-sent")
    client = rocket(gateway.endpoint)
    client.do("producer", topics=topic)
    sent = client.do(
        "send", topic=topic, body="grüße", tag="paid", keys="one", p_a="007", p_b="x y"
    )
    client.do("simple", group="as-sent", topic=topic)

    [message] = client.messages("receive")

    assert message["id"] == sent["id"]
    assert (message["body"], message["tag"], message["keys"]) == ("grüße", "paid", "one")
    assert (message["p.a"], message["p.b"]) == ("007", "x y")
    assert (message["attempt"], message["corrupted"]) == ("1", "0")
    assert not [name for name in message if name == "p.rocketmq"], "what is ours is not shown"
    client.do("ack", n=message["n"])
    assert tern("ledger", topic, "--json", url=rocket_node.url).json()[0]["acked"] == 1
    client.do("close")


def test_an_unknown_topic_is_refused_and_not_made(
    rocket_node: Node, gateway: GatewayServer, rocket: ClientFactory
) -> None:
    client = rocket(gateway.endpoint)
    client.do("producer", topics="misspelt")

    with pytest.raises(ClientRefused, match="failed to fetch topic:misspelt route"):
        client.do("send", topic="misspelt", body="x")

    topics = tern("topic", "list", "--json", url=rocket_node.url).json()
    assert "misspelt" not in [topic["name"] for topic in topics]


def test_a_receipt_is_used_once(
    rocket_node: Node, gateway: GatewayServer, rocket: ClientFactory
) -> None:
    topic = topic_of(rocket_node, "receipts")
    client = rocket(gateway.endpoint)
    client.do("producer", topics=topic)
    client.do("send", topic=topic, body="x")
    client.do("simple", group="receipts", topic=topic)
    [message] = client.messages("receive")
    client.do("ack", n=message["n"])

    with pytest.raises(ClientRefused) as refused:
        client.do("ack", n=message["n"])

    assert refused.value.code == 40013


def test_what_is_not_acknowledged_in_time_comes_again_and_its_receipt_is_dead(
    rocket_node: Node, gateway: GatewayServer, rocket: ClientFactory
) -> None:
    """Invisible for 10 s, the shortest that may be asked for; then the next attempt."""
    topic = topic_of(rocket_node, "expiring")
    client = rocket(gateway.endpoint)
    client.do("producer", topics=topic)
    client.do("send", topic=topic, body="x")
    client.do("simple", group="expiring", topic=topic, wait=15)
    began = time.monotonic()
    [first] = client.messages("receive", invisible=10)

    [second] = client.messages("receive", invisible=10)

    assert 9.5 < time.monotonic() - began < 14
    assert (second["id"], second["attempt"]) == (first["id"], "2")
    with pytest.raises(ClientRefused) as refused:
        client.do("ack", n=first["n"])
    assert refused.value.code == 40013
    client.do("ack", n=second["n"])


def test_a_simple_consumer_asks_for_more_time(
    rocket_node: Node, gateway: GatewayServer, rocket: ClientFactory
) -> None:
    topic = topic_of(rocket_node, "more-time")
    client = rocket(gateway.endpoint)
    client.do("producer", topics=topic)
    client.do("send", topic=topic, body="x")
    client.do("simple", group="more-time", topic=topic, wait=12)
    [message] = client.messages("receive", invisible=10)
    client.do("change", n=message["n"], seconds=60)

    assert client.messages("receive", invisible=10) == []
    client.do("ack", n=message["n"])


def test_too_short_an_invisible_time_is_refused(
    rocket_node: Node, gateway: GatewayServer, rocket: ClientFactory
) -> None:
    topic = topic_of(rocket_node, "too-short")
    client = rocket(gateway.endpoint)
    client.do("simple", group="too-short", topic=topic)

    with pytest.raises(ClientRefused) as refused:
        client.messages("receive", invisible=9)

    assert refused.value.code == 40011


def test_two_simple_consumers_share_a_group_message_by_message(
    rocket_node: Node, gateway: GatewayServer, rocket: ClientFactory
) -> None:
    """One that asked for a single message does not keep others from the second."""
    topic = topic_of(rocket_node, "sharing")
    one, other = rocket(gateway.endpoint), rocket(gateway.endpoint)
    one.do("producer", topics=topic)
    one.do("simple", group="sharing", topic=topic, wait=10)
    other.do("simple", group="sharing", topic=topic, wait=10)
    for number in range(5):
        one.do("send", topic=topic, body=number)

    [first] = one.messages("receive", most=1)
    others: list[Shown] = []
    while len(others) < 4:
        found = other.messages("receive")
        assert found
        others += found

    assert sorted([first["body"], *(each["body"] for each in others)]) == list("01234")


def test_a_push_consumer_handles_and_fails(
    rocket_node: Node, gateway: GatewayServer, rocket: ClientFactory
) -> None:
    """A failure comes again when the policy of the group says, as the next attempt."""
    topic = topic_of(rocket_node, "pushed")
    client = rocket(gateway.endpoint)
    client.do("producer", topics=topic)
    assert client.do("push", group="pushed", topic=topic, failures=1)["fifo"] == "false"
    client.do("send", topic=topic, body="first")
    wait_until(lambda: client.messages("came"), "it came")
    settings = ("--retry", "fixed:1s")
    assert tern("group", "set", topic, "pushed", *settings, url=rocket_node.url).code == 0
    client.do("send", topic=topic, body="second")

    def outcomes() -> list[tuple[str, str]]:
        found = [each for each in client.messages("came") if each["body"] == "second"]
        return [(each["outcome"], each["attempt"]) for each in found]

    wait_until(lambda: len(outcomes()) == 2, "it came again")
    assert outcomes() == [("failed", "1"), ("handled", "2")]


def test_after_the_last_attempt_a_message_is_a_dead_letter_and_can_be_sent_again(
    rocket_node: Node, gateway: GatewayServer, rocket: ClientFactory
) -> None:
    topic, url = topic_of(rocket_node, "dying"), rocket_node.url
    assert tern("group", "create", topic, "dying", url=url).code == 0
    limits = ("--retry", "fixed:100ms", "--attempts", "2")
    assert tern("group", "set", topic, "dying", *limits, url=url).code == 0
    client = rocket(gateway.endpoint)
    client.do("producer", topics=topic)
    client.do("push", group="dying", topic=topic, failures=2)
    sent = client.do("send", topic=topic, body="poison")

    def letters() -> list[dict[str, str]]:
        found: list[dict[str, str]] = tern("dead", "list", "dying", "--json", url=url).json()
        return found

    wait_until(letters, "it is a dead letter", every=0.3)
    assert [each["outcome"] for each in client.messages("came")] == ["failed", "failed"]
    assert tern("dead", "resend", "dying", "--yes", url=url).code == 0
    wait_until(lambda: len(client.messages("came")) == 3, "it came once more")
    again = client.messages("came")[-1]
    assert (again["outcome"], again["body"]) == ("handled", "poison")
    assert sent["id"]


def test_message_groups_are_handled_in_order_by_three_consumers(
    rocket_node: Node, gateway: GatewayServer, rocket: ClientFactory
) -> None:
    topic = topic_of(rocket_node, "ordered-push")
    consumers = [rocket(gateway.endpoint) for _ in range(3)]
    for consumer in consumers:
        assert consumer.do("push", group="fifo-three", topic=topic)["fifo"] == "true"
    sender = rocket(gateway.endpoint)
    sender.do("producer", topics=topic)
    for number in range(20):
        for group in "abcd":
            sender.do("send", topic=topic, body=f"{group}{number}", group=group)

    def handled() -> list[Shown]:
        return [each for consumer in consumers for each in consumer.messages("came")]

    wait_until(lambda: len(handled()) == 80, "all were handled", seconds=40, every=0.3)
    for group in "abcd":
        for consumer in consumers:
            numbers = [
                int(each["body"][1:])
                for each in consumer.messages("came")
                if each["group"] == group
            ]
            assert numbers == sorted(numbers)


def test_a_group_that_is_set_to_an_order_is_told_so_before_its_first_message(
    rocket_node: Node, gateway: GatewayServer, rocket: ClientFactory
) -> None:
    """Whatever its name; and the other way round."""
    topic, url = topic_of(rocket_node, "order-set"), rocket_node.url
    for group, order in (("by-setting", "keys"), ("fifo-not", "none")):
        assert tern("group", "create", topic, group, url=url).code == 0
        assert tern("group", "set", topic, group, "--order", order, url=url).code == 0
    client, other = rocket(gateway.endpoint), rocket(gateway.endpoint)

    assert client.do("push", group="by-setting", topic=topic)["fifo"] == "true"
    assert other.do("push", group="fifo-not", topic=topic)["fifo"] == "false"


def test_a_fifo_failure_is_tried_again_in_the_client_and_then_given_up(
    rocket_node: Node, gateway: GatewayServer, rocket: ClientFactory
) -> None:
    topic, url = topic_of(rocket_node, "fifo-dying"), rocket_node.url
    assert tern("group", "create", topic, "fifo-dying", url=url).code == 0
    limits = ("--retry", "fixed:1s", "--ordered-attempts", "2")
    assert tern("group", "set", topic, "fifo-dying", *limits, url=url).code == 0
    client = rocket(gateway.endpoint)
    client.do("producer", topics=topic)
    client.do("push", group="fifo-dying", topic=topic, failures=2)
    client.do("send", topic=topic, body="one", group="g")
    client.do("send", topic=topic, body="two", group="g")

    wait_until(
        lambda: len(tern("dead", "list", "fifo-dying", "--json", url=url).json()) == 2,
        "both were given up",
        every=0.3,
    )
    assert [each["body"] for each in client.messages("came")] == ["one", "one", "two", "two"]


def test_a_delayed_message_comes_when_it_is_due_and_not_when_it_was_recalled(
    rocket_node: Node, gateway: GatewayServer, rocket: ClientFactory
) -> None:
    topic = topic_of(rocket_node, "delayed")
    client = rocket(gateway.endpoint)
    client.do("producer", topics=topic)
    client.do("simple", group="delayed", topic=topic, wait=10)
    taken_back = client.do("send", topic=topic, body="never", after=4)
    sent = client.do("send", topic=topic, body="later", after=3)
    assert client.do("recall", topic=topic, handle=taken_back["recall"])["id"] == taken_back["id"]

    [message] = client.messages("receive")

    assert (message["body"], message["id"]) == ("later", sent["id"])
    client.do("ack", n=message["n"])
    with pytest.raises(ClientRefused) as refused:
        client.do("recall", topic=topic, handle=sent["recall"])
    assert refused.value.code == 40400


def test_half_messages_are_committed_or_never_seen(
    rocket_node: Node, gateway: GatewayServer, rocket: ClientFactory
) -> None:
    topic = topic_of(rocket_node, "halves")
    client = rocket(gateway.endpoint)
    client.do("producer", topics=topic, checker="unknown")
    client.do("send", topic=topic, body="forgotten", end="rollback")
    sent = client.do("send", topic=topic, body="seen", end="commit")
    client.do("simple", group="halves", topic=topic, wait=5)

    [message] = client.messages("receive")

    assert (message["body"], message["id"]) == ("seen", sent["id"])


async def test_both_kinds_of_clients_read_what_the_other_sent(
    rocket_node: Node, gateway: GatewayServer, rocket: ClientFactory
) -> None:
    """With id, key, tag and properties; typed ones as text."""
    topic = topic_of(rocket_node, "both-ways")
    client = rocket(gateway.endpoint)
    client.do("producer", topics=topic)
    theirs = client.do("send", topic=topic, body="theirs", tag="t", keys="k", p_n="5")
    async with ternmq.connect(rocket_node.url) as mq:
        ours = await mq.send(
            topic, b"ours", key="k2", tag="u", properties={"n": 5, "on": True, "raw": b"\0"}
        )
        async with mq.consumer(topic, group="ours") as consumer:
            found = {}
            async for message in consumer:
                found[message.body] = message
                message.ack()
                if len(found) == 2:
                    break
    seen = found[b"theirs"]
    assert seen.id == theirs["id"].lower()
    assert (seen.key, seen.tag, seen.properties["n"]) == ("k", "t", "5")
    client.do("simple", group="theirs", topic=topic)
    received: dict[str, Shown] = {}
    while len(received) < 2:
        for each in client.messages("receive"):
            received[each["body"]] = each
    shown = received["ours"]
    assert shown["id"] == ours.id
    assert (shown["keys"], shown["tag"]) == ("k2", "u")
    assert (shown["p.n"], shown["p.on"], shown["p.raw"]) == ("5", "true", "AA==")


def test_tags_choose_messages(
    rocket_node: Node, gateway: GatewayServer, rocket: ClientFactory
) -> None:
    topic = topic_of(rocket_node, "tags")
    client = rocket(gateway.endpoint)
    client.do("producer", topics=topic)
    for tag in ("a", "b", "c"):
        client.do("send", topic=topic, body=tag, tag=tag)
    client.do("simple", group="tags", topic=topic, tag="a || c")

    found: list[str] = []
    while len(found) < 2:
        found += [each["body"] for each in client.messages("receive")]

    assert found == ["a", "c"]
