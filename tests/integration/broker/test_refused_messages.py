"""Messages over a topic's limit that are put aside, against real processes (D10)."""

from pathlib import Path
from uuid import uuid4

import pytest

import ternmq.sync
from ternmq.core.errors import OverLimit, PutAside
from tests.integration.processes import Node, NodeFactory, tern


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid4().hex[:12]}"


def overrun(mq: ternmq.sync.Client, topic: str, bodies: list[bytes]) -> None:
    """Send until the limit is used up, then these, which are put aside."""
    mq.admin.create_topic(topic)
    mq.admin.set_topic(topic, rate=1, over_limit="dead_letter")
    mq.send_many(topic, [b"in"] * 1_000)
    for body in bodies:
        with pytest.raises(PutAside, match=f"tern dead list --topic {topic}"):
            mq.send(topic, body, key=body.decode())


def test_what_is_over_the_limit_is_kept_apart_listed_sent_and_deleted(
    shared_node: Node, topic: str, tmp_path: Path
) -> None:
    """D10: dead letters from an exceeded limit, kept apart, re-sent or deleted by a person."""
    url = shared_node.url
    with ternmq.sync.connect(url, app="shop") as mq:
        overrun(mq, topic, [b"a", b"b", b"c"])
        line = mq.admin.create_group(topic, "g", ternmq.Start()).ledger
        assert (line.total, line.ready) == (1_000, 1_000)
        [figures] = mq.admin.topic_figures(topic)
        assert (figures.refused, figures.put_aside) == ({"limit": 3}, 3)

        listed = tern("dead", "list", "--topic", topic, "--json", url=url).json()
        assert [one["body"] for one in listed] == ["a", "b", "c"]
        assert {(one["topic"], one["reason"], one["key"] == one["body"]) for one in listed} == {
            (topic, "over the limit", True)
        }
        target = tmp_path / "refused.jsonl"
        tern("dead", "export", str(target), "--topic", topic, url=url)
        assert len(target.read_text(encoding="utf-8").splitlines()) == 3
        choose = ("--topic", topic, "--id", listed[1]["id"], "--yes", "--json")
        done = tern("dead", "resend", *choose, url=url).json()
        assert (done["chosen"], done["handled"], done["failed"]) == (1, 1, [])

        [line] = mq.admin.ledger(topic, "g")
        assert (line.total, line.ready) == (1_001, 1_001)
        [again] = list(mq.read(topic, start=1_000, end=1_001))
        assert (again.id, again.body, again.key) == (listed[1]["id"], b"b", "b")
        gone = tern("dead", "delete", "--topic", topic, "--yes", "--json", url=url).json()
        assert gone["handled"] == 2
        assert mq.admin.open_refused(topic) == []
        assert mq.admin.topic_figures(topic)[0].put_aside == 0


def test_what_was_put_aside_survives_kill_9_and_goes_with_its_topic(
    node_factory: NodeFactory, topic: str
) -> None:
    """The producer was told that it is kept; a topic of the same name does not find it."""
    node = node_factory()
    with ternmq.sync.connect(node.url, app="shop") as mq:
        overrun(mq, topic, [b"a", b"b"])
    node.kill()
    node.restart()

    with ternmq.sync.connect(node.url, app="shop") as mq:
        assert mq.admin.open_refused(topic) == [(0, 2)]
        assert [one.body for one in mq.read(f"%refused.{topic}", start=0, end=2)] == [b"a", b"b"]
        assert mq.admin.delete_refused(topic, [(0, 1)]).handled == 1
        assert mq.admin.resend_refused(topic, [(0, 2)]).handled == 1
        assert mq.admin.topic_figures(topic)[0].put_aside == 0
        mq.admin.delete_topic(topic)
        mq.admin.create_topic(topic)
        assert mq.admin.open_refused(topic) == []
        assert not mq.admin.topics(f"%refused.{topic}")


def test_refusals_are_counted_by_reason(shared_node: Node, topic: str) -> None:
    """D7, D10: limit, size, closed, paused; shown by the topic."""
    with ternmq.sync.connect(shared_node.url, app="shop", delivery_timeout=1.0) as mq:
        mq.admin.create_topic(topic, ternmq.TopicSettings(body_size_max=100))
        with pytest.raises(ternmq.TooLarge):  # A half message: of others the client knows itself.
            mq.detached("too large").send_many(topic, [bytes(101)])
        for changes in ({"paused": True}, {"paused": False, "closed": True, "apps": ["other"]}):
            mq.admin.set_topic(topic, **changes)
            with pytest.raises(ternmq.TernError):
                mq.send(topic, b"x")
        mq.admin.set_topic(topic, closed=False, rate=1)
        mq.send_many(topic, [b"x"] * 100)
        with pytest.raises(OverLimit):
            mq.send(topic, b"x")
    shown = tern("topic", "show", topic, "--json", url=shared_node.url).json()

    assert shown["refused"] == {"closed": 1, "limit": 1, "paused": 3, "size": 1}
    assert (shown["messages"], shown["put_aside"]) == (100, 0)
    assert (shown["sent"]["messages"], shown["sent"]["messages_60s"] > 0) == (100, True)
