"""Limits, pauses and what happens to refused messages, against real processes (J13, D7, D10)."""

import time
from uuid import uuid4

import pytest

import ternmq
import ternmq.sync
from ternmq.cli.ledger import total
from ternmq.core.errors import OverLimit
from tests.integration.processes import Node, NodeFactory, tern


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid4().hex[:12]}"


def sent(url: str, topic: str, *, app: str, seconds: float) -> tuple[int, float]:
    """How many messages an application gets stored when it sends for a while, and how long that
    really took."""
    count = 0
    with ternmq.sync.connect(url, app=app) as mq:
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            count += len(mq.send_many(topic, [b"x"] * 10))
        return count, time.monotonic() - began


def holds(rate: int, count: int, seconds: float) -> bool:
    """At most one second's worth and one batch more than the rate, and not far less either."""
    return rate * seconds * 0.5 <= count <= rate * (seconds + 1) + 10


def balanced(url: str, topic: str) -> bool:
    with ternmq.sync.connect(url) as mq:
        return all(line.total == total(line) for line in mq.admin.ledger(topic))


def test_a_limit_of_a_topic_holds_and_is_changed_while_somebody_sends(
    shared_node: Node, topic: str
) -> None:
    """J13: messages/s per topic; senders wait and see no error."""
    url = shared_node.url
    with ternmq.sync.connect(url) as mq:
        mq.admin.create_topic(topic)
    shown = tern("topic", "set", topic, "--rate", "200/s", "--json", url=url).json()
    assert (shown["rate"], shown["bytes_rate"]) == (200, 0)

    slow, seconds = sent(url, topic, app="shop", seconds=1.0)
    assert holds(200, slow, seconds)
    tern("topic", "set", topic, "--rate", "none", url=url)
    fast, seconds = sent(url, topic, app="shop", seconds=0.5)
    assert fast > 2 * 200 * seconds
    assert balanced(url, topic)


def test_who_cannot_wait_is_told_how_long_it_would_be(shared_node: Node, topic: str) -> None:
    """D7: a clear answer; nothing is stored."""
    url = shared_node.url
    with ternmq.sync.connect(url, app="shop", delivery_timeout=0.5) as mq:
        mq.admin.create_topic(topic)
        mq.admin.set_topic(topic, rate=10)
        mq.send_many(topic, [b"x"] * 100)
        with pytest.raises(OverLimit, match="at most 10 messages/s") as raised:
            mq.send(topic, b"one more")
        assert raised.value.wait is not None
        assert 5 < raised.value.wait <= 9.1
        assert mq.admin.seek(topic, ternmq.Start()).end == 100


def test_an_application_is_limited_on_all_topics_together_and_nobody_else(
    shared_node: Node, topic: str
) -> None:
    """J13: per application, by bytes."""
    url, app = shared_node.url, f"app-{topic}"
    tern("limit", "set", "--app", app, "--bytes", "20KB/s", url=url)
    [limit] = [one for one in tern("limit", "list", "--json", url=url).json() if one["app"] == app]
    assert limit["bytes_rate"] == 20 * 1024

    with (
        ternmq.sync.connect(url, app=app, delivery_timeout=0.2) as mq,
        pytest.raises(OverLimit, match=f"application '{app}' may send at most 20480 bytes/s"),
    ):
        for number in range(10):
            mq.send(f"{topic}-{number % 2}", random_bytes(15_000))
    with ternmq.sync.connect(url, app="other", delivery_timeout=0.2) as mq:
        for _ in range(10):
            mq.send(topic, random_bytes(15_000))
        mq.admin.set_limit(app, bytes_rate=0)
        assert app not in [limit.app for limit in mq.admin.limits()]


def random_bytes(count: int) -> bytes:
    """So many that compression does not make fewer."""
    return b"".join(uuid4().bytes for _ in range(count // 16))


def test_limits_survive_kill_9_of_the_broker(node_factory: NodeFactory, topic: str) -> None:
    """J13: durable when answered."""
    node = node_factory()
    with ternmq.sync.connect(node.url) as mq:
        mq.admin.create_topic(topic)
        mq.admin.set_topic(topic, rate=100)
        mq.admin.set_limit("shop", rate=50)
    node.kill()
    node.restart()

    assert tern("topic", "show", topic, "--json", url=node.url).json()["rate"] == 100
    assert holds(50, *sent(node.url, topic, app="shop", seconds=1.0))
    assert balanced(node.url, topic)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("topic", "set", "nowhere", "--rate", "5/s"), "does not exist"),
        (("topic", "set", "nowhere", "--rate", "fast"), "is not a rate"),
        (("limit", "set", "--app", "a b", "--rate", "5/s"), "cannot be the name"),
    ],
)
def test_a_mistake_is_one_line(shared_node: Node, arguments: tuple[str, ...], said: str) -> None:
    done = tern(*arguments, url=shared_node.url, code=None)

    assert done.code != 0
    assert said in done.err
