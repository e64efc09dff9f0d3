"""Processes that are killed under official clients: nothing acknowledged is lost."""

import threading
from pathlib import Path

import pytest

from tests.integration.gateway.clients import ClientFactory, ClientRefused, make_gateway
from tests.integration.processes import Node, tern
from tests.waiting import wait_until


def topic_of(node: Node, name: str) -> str:
    assert tern("topic", "create", name, url=node.url).code == 0
    return name


@pytest.mark.timeout(240)
def test_a_gateway_killed_under_load_loses_nothing(
    rocket_node: Node, rocket: ClientFactory, tmp_path: Path
) -> None:
    """Killed and started again twice while one client sends and another consumes: whatever was
    answered is consumed, and the ledger adds up."""
    topic = topic_of(rocket_node, "killed-gateway")
    gateway = make_gateway(rocket_node.url, tmp_path)
    sender, receiver = rocket(gateway.endpoint), rocket(gateway.endpoint)
    sender.do("producer", topics=topic)
    receiver.do("push", group="killed-gateway", topic=topic)
    answered: list[str] = []
    enough = threading.Event()

    def send() -> None:
        number = 0
        while not enough.is_set():
            number += 1
            try:
                answered.append(sender.do("send", topic=topic, body=number)["id"])
            except ClientRefused:
                enough.wait(0.1)

    sending = threading.Thread(target=send)
    sending.start()
    try:
        for _ in range(2):
            before = len(answered)
            wait_until(lambda at=before: len(answered) > at + 50, "some are sent", seconds=60)  # type: ignore[misc]
            gateway.kill()
            gateway.start()
        before = len(answered)
        wait_until(lambda: len(answered) > before + 50, "it goes on", seconds=60)
    finally:
        enough.set()
        sending.join()

    def handled() -> set[str]:
        return {each["id"] for each in receiver.messages("came")}

    wait_until(lambda: set(answered) <= handled(), "all that was answered came", seconds=90)

    def settled() -> bool:
        [line] = tern("ledger", topic, "--json", url=rocket_node.url).json()
        assert line["total"] >= len(answered)
        return bool(line["acked"] == line["total"])

    wait_until(settled, "the ledger is settled", seconds=90, every=0.5)
    assert len(set(answered)) == len(answered)
    gateway.finish()


def test_a_message_is_acknowledged_at_another_gateway_than_its_own(
    rocket_node: Node, rocket: ClientFactory, tmp_path: Path
) -> None:
    """Receipts are the broker's: the gateway that gave them out may be gone."""
    topic = topic_of(rocket_node, "other-gateway")
    gateway = make_gateway(rocket_node.url, tmp_path)
    client = rocket(gateway.endpoint)
    client.do("producer", topics=topic)
    client.do("send", topic=topic, body="x")
    client.do("simple", group="other-gateway", topic=topic)
    [message] = client.messages("receive", invisible=60)
    gateway.kill()
    gateway.start()

    wait_until(
        lambda: client.do("ack", n=message["n"]) is not None,
        "the new gateway takes it",
        ignoring=ClientRefused,
        every=0.2,
    )

    [line] = tern("ledger", topic, "--json", url=rocket_node.url).json()
    assert (line["acked"], line["total"]) == (1, 1)
    gateway.finish()


def test_messages_of_a_push_consumer_that_was_killed_go_to_another(
    rocket_node: Node, rocket: ClientFactory, tmp_path: Path
) -> None:
    """Within seconds, as the same attempt."""
    topic = topic_of(rocket_node, "killed-client")
    gateway = make_gateway(rocket_node.url, tmp_path)
    one, other = rocket(gateway.endpoint), rocket(gateway.endpoint)
    one.do("producer", topics=topic)
    one.do("send", topic=topic, body="x")
    one.do("push", group="killed-client", topic=topic, seconds=600)

    def held() -> bool:
        [line] = tern("ledger", topic, "--json", url=rocket_node.url).json()
        return bool(line["in_flight"] == 1)

    wait_until(held, "it has the message", every=0.2, ignoring=ValueError)
    one.kill()
    other.do("push", group="killed-client", topic=topic)

    wait_until(lambda: other.messages("came"), "the other has it", seconds=20, every=0.2)
    [message] = other.messages("came")
    assert (message["body"], message["attempt"]) == ("x", "1")
    gateway.finish()


def test_a_producer_is_asked_what_became_of_its_half_message(
    rocket_node: Node, rocket: ClientFactory, tmp_path: Path
) -> None:
    """Itself; when it was killed, another producer of the topic."""
    topic = topic_of(rocket_node, "asked")
    gateway = make_gateway(rocket_node.url, tmp_path)
    one, other = rocket(gateway.endpoint), rocket(gateway.endpoint)
    one.do("producer", topics=topic, checker="commit")
    other.do("simple", group="asked", topic=topic, wait=15)
    one.do("send", topic=topic, body="mine", end="left open")
    [message] = other.messages("receive")
    assert message["body"] == "mine"
    assert one.do("came")["checked"] == "mine"

    one.do("send", topic=topic, body="orphaned", end="left open")
    one.kill()
    other.do("producer", topics=topic, checker="commit")
    [message] = other.messages("receive")
    assert message["body"] == "orphaned"
    gateway.finish()
