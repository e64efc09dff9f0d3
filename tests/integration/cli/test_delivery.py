"""`tern dead`, `tern group set` and filters on the command line, against a real node."""

from pathlib import Path
from uuid import uuid4

import pytest

import ternmq.sync
from tests.integration.processes import Node, NodeFactory, tern


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid4().hex[:12]}"


def reject(url: str, topic: str, group: str, bodies: list[bytes]) -> None:
    """Let a group refuse messages."""
    with ternmq.sync.connect(url, app="shop") as mq:
        mq.send_many(topic, bodies)
        with mq.consumer(topic, group=group) as consumer:
            for body in bodies:
                message = next(consumer)
                assert message.body == body
                message.reject(f"ValueError: bad {body.decode()}")
            consumer.flush()


def test_dead_letters_are_listed_sent_again_deleted_and_exported(
    shared_node: Node, topic: str, tmp_path: Path
) -> None:
    """R13, D10: browsable, re-sendable; by error, with a dry run and an honest result."""
    url, group = shared_node.url, f"g-{topic}"
    reject(url, topic, group, [b"a", b"b", b"c"])

    listed = tern("dead", "list", group, "--json", url=url).json()
    assert [one["reason"] for one in listed] == [f"ValueError: bad {x}" for x in "abc"]
    shown = tern("dead", "show", group, listed[1]["id"], url=url).json()
    assert (shown["topic"], shown["body"], shown["attempt"]) == (topic, "b", 1)

    choose_b = ("--error", "bad b", "--json")
    dry = tern("dead", "resend", group, *choose_b, "--dry-run", url=url).json()
    done = tern("dead", "resend", group, *choose_b, "--yes", url=url).json()
    assert (dry["chosen"], dry["handled"]) == (1, 0)
    assert dry["results"] == [{"id": listed[1]["id"], "result": "chosen"}]
    assert (done["chosen"], done["handled"], done["failed"]) == (1, 1, [])
    assert done["results"] == [{"id": listed[1]["id"], "result": "sent again"}]
    again = tern("consume", topic, "--group", group, "--count", "1", "--json", url=url)
    [message] = again.json_lines()
    assert (message["body"], message["topic"], message["id"]) == ("b", topic, listed[1]["id"])

    target = tmp_path / "letters.jsonl"
    tern("dead", "export", group, str(target), "--until", "2099-01-01T00:00Z", url=url)
    assert len(target.read_text(encoding="utf-8").splitlines()) == 2
    old = tern("dead", "list", group, "--until", "1h", url=url)
    assert f"no open dead letters of group {group} like that" in old.err
    gone = tern("dead", "delete", group, "--yes", "--json", url=url).json()
    assert gone["handled"] == 2
    assert tern("dead", "list", group, "--json", url=url).json() == []


def test_dead_letters_that_were_handled_stay_handled_after_kill_9(
    node_factory: NodeFactory, topic: str
) -> None:
    node = node_factory()
    reject(node.url, topic, "g", [b"a", b"b"])
    [first, _] = tern("dead", "list", "g", "--json", url=node.url).json()
    tern("dead", "resend", "g", "--id", first["id"], "--yes", url=node.url)
    node.kill()
    node.restart()

    left = tern("dead", "list", "g", "--json", url=node.url).json()
    again = tern("consume", topic, "--group", "g", "--count", "1", url=node.url)

    assert [one["body"] for one in left] == ["b"]
    assert again.out == "a\n"


def test_a_group_without_dead_letters_has_none(shared_node: Node) -> None:
    assert tern("dead", "list", "nobody", "--json", url=shared_node.url).json() == []
    refused = tern("dead", "show", "nobody", "0" * 26, url=shared_node.url, code=1)

    assert "not among the open dead letters of group nobody" in refused.err


def test_settings_of_a_group_survive_kill_9(node_factory: NodeFactory, topic: str) -> None:
    """J13: policies are changed while it runs, and are decisions."""
    node = node_factory()
    tern("group", "create", topic, "g", "--create", url=node.url)
    tern("group", "set", topic, "g", "--retry", "fixed:7s", "--attempts", "3", url=node.url)
    tern("group", "pause", topic, "g", url=node.url)
    node.kill()
    node.restart()

    shown = tern("group", "show", topic, "g", "--json", url=node.url).json()

    assert shown["settings"]["retry"] == "fixed:7s"
    assert shown["settings"]["attempts_max"] == 3
    tern("send", topic, "x", url=node.url)
    nothing = tern("consume", topic, "--group", "g", "--no-follow", url=node.url)
    assert nothing.out == ""
    assert "the group is paused" in nothing.err
    tern("group", "resume", topic, "g", url=node.url)
    assert tern("consume", topic, "--group", "g", "--count", "1", url=node.url).out == "x\n"


def test_a_filter_is_a_flag_and_a_wrong_one_names_the_place(shared_node: Node, topic: str) -> None:
    """R10: refused at subscription."""
    url = shared_node.url
    for amount in ("5", "15"):
        tern("send", topic, amount, "--property", f"amount:={amount}", url=url)
    flags = ("--group", "g", "--count", "1")

    passed = tern("consume", topic, *flags, "--filter", "amount > 10", url=url)
    wrong = tern("consume", topic, *flags, "--filter", "amount >", url=url, code=2)

    assert passed.out == "15\n"
    assert "column 9" in wrong.err


def test_a_dead_letter_shows_what_the_handler_raised(shared_node: Node, topic: str) -> None:
    """R13: type, text and traceback, from a real consumer to the command line."""
    url, group = shared_node.url, f"g-{topic}"
    with ternmq.sync.connect(url, app="shop") as mq:
        mq.send(topic, b"x")
        with mq.consumer(topic, group=group, attempts_max=1) as consumer:
            message = next(consumer)
            try:
                raise LookupError("no such order")
            except LookupError as error:
                message.retry(error=error)
            consumer.flush()

    [letter] = tern("dead", "list", group, "--json", url=url).json()
    shown = tern("dead", "show", group, letter["id"], url=url).json()

    assert (shown["error"]["type"], shown["error"]["text"]) == ("LookupError", "no such order")
    assert 'raise LookupError("no such order")' in shown["error"]["traceback"]


def test_a_group_hands_out_by_priority_when_told(shared_node: Node, topic: str) -> None:
    url, group = shared_node.url, "hurry"
    tern("topic", "create", topic, url=url)
    tern("group", "create", topic, group, url=url)
    shown = tern("group", "set", topic, group, "--priority", "on", url=url).out
    assert "higher ones first" in shown
    wrong = tern("group", "set", topic, group, "--priority", "high", url=url, code=None)
    assert "neither on nor off" in wrong.err
    with ternmq.sync.connect(url, app="shop") as mq:
        for priority in (1, 9, 5):
            mq.send(topic, b"%d" % priority, priority=priority)
        with mq.consumer(topic, group=group, prefetch=1) as consumer:
            got = []
            for _ in range(3):
                message = next(consumer)
                got.append(message.body)
                message.ack()
                consumer.flush()
    assert got == [b"9", b"5", b"1"]


def test_an_order_key_that_stopped_is_shown_and_resumed(shared_node: Node, topic: str) -> None:
    """J16: an operator sees which key stands still and lets it go on."""
    url, group = shared_node.url, "ledger"
    tern("topic", "create", topic, url=url)
    tern("group", "create", topic, group, url=url)
    tern("group", "set", topic, group, "--on-failure", "stop", url=url)
    with ternmq.sync.connect(url, app="shop") as mq:
        for number in range(3):
            mq.send(topic, b"%d" % number, order_key="o-17")
        with mq.consumer(topic, group=group, ordered=True) as consumer:
            next(consumer).retry(reason="no account")
            consumer.flush()

            shown = tern("group", "show", topic, group, url=url).out
            assert "o-17" in shown
            assert "no account" in shown
            [key] = tern("group", "show", topic, group, "--json", url=url).json()["keys"]["stopped"]
            assert (key["key"], key["held_back"]) == ("o-17", 2)
            wrong = tern("group", "resume", topic, group, "--key", "o-1", url=url, code=None)
            assert wrong.code != 0
            assert "does not stand still" in wrong.err
            done = tern("group", "resume", topic, group, "--key", "o-17", "--json", url=url).json()
            assert done["messages"] == 1
            assert (next(consumer).attempt, key["attempt"]) == (2, 2)
