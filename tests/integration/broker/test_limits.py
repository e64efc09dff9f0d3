"""Limits, pauses and what happens to refused messages, against real processes (J13, D7, D10)."""

import asyncio
import time
from uuid import uuid4

import pytest

import ternmq
import ternmq.sync
from ternmq.cli.messages.ledger import total
from ternmq.core.errors import OverLimit, Paused
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


async def received(consumer: ternmq.Consumer, seconds: float) -> tuple[int, float]:
    """How many messages a consumer is handed in a while, acking each, and how long that took."""
    count = 0
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(seconds):
            async for message in consumer:
                message.ack()
                count += 1
    except TimeoutError:
        pass
    return count, loop.time() - began


async def test_a_group_is_handed_no_more_than_its_limit(shared_node: Node, topic: str) -> None:
    """J13: consume limits by waiting, never by errors; changed while it consumes."""
    async with ternmq.connect(shared_node.url, app="shop") as mq:
        await mq.send_many(topic, [b"x"] * 5_000)
        async with mq.consumer(topic, group="slow", prefetch=100) as consumer:
            await mq.admin.set_group(topic, "slow", rate=100)
            await received(consumer, 0.5)  # What was prefetched before the limit was there.
            slow, seconds = await received(consumer, 1.0)
            assert 40 * seconds <= slow <= 100 * (seconds + 1) + 100
            await mq.admin.set_group(topic, "slow", rate=0)
            async with asyncio.timeout(9):  # At 100/s it would take longer.
                for _ in range(1_000):
                    (await consumer.__anext__()).ack()
    assert balanced(shared_node.url, topic)


async def test_what_is_in_flight_is_bounded_by_group_and_by_consumer(
    shared_node: Node, topic: str
) -> None:
    """J13: max in flight; an ack makes room at once."""
    async with ternmq.connect(shared_node.url, app="shop") as mq:
        await mq.send_many(topic, [b"x"] * 100)
        await mq.admin.create_group(topic, "few", ternmq.Start())
        await mq.admin.set_group(topic, "few", in_flight_max=15, consumer_in_flight_max=10)
        async with (
            mq.consumer(topic, group="few") as one,
            mq.consumer(topic, group="few") as two,
        ):
            held = [await asyncio.wait_for(one.__anext__(), 10) for _ in range(10)]
            other = [await asyncio.wait_for(two.__anext__(), 10) for _ in range(5)]
            [group] = await mq.admin.groups(topic, "few")
            assert group.ledger.in_flight == 15
            assert sorted(member.in_flight for member in group.members) == [5, 10]
            for message in other[:3]:
                await message.ack()
            more = [await asyncio.wait_for(two.__anext__(), 10) for _ in range(3)]
            assert len({message.sequence for message in held + other + more}) == 18
            [group] = await mq.admin.groups(topic, "few")
            assert group.ledger.in_flight == 15
    assert balanced(shared_node.url, topic)


async def test_an_application_is_handed_no_more_than_its_limit_and_others_go_on(
    shared_node: Node, topic: str
) -> None:
    url, app = shared_node.url, f"app-{topic}"
    async with ternmq.connect(url, app=app) as slow_mq, ternmq.connect(url, app="quick") as mq:
        await mq.admin.set_limit(app, consume_rate=50)
        await mq.send_many(topic, [b"x"] * 20_000)
        async with (
            slow_mq.consumer(topic, group="g", prefetch=10) as slow,
            mq.consumer(topic, group="g", prefetch=1_000) as quick,
        ):
            (few, seconds), (many, _) = await asyncio.gather(
                received(slow, 1.0), received(quick, 1.0)
            )
    assert 0 < few <= 50 * (seconds + 1) + 4
    assert many > 4 * few
    assert balanced(url, topic)


async def test_a_paused_topic_refuses_what_is_sent_and_hands_out_what_is_there(
    shared_node: Node, topic: str
) -> None:
    """J13, D7: a clear answer; consuming goes on."""
    async with ternmq.connect(shared_node.url, app="shop") as mq:
        await mq.send(topic, b"before")
        tern("topic", "pause", topic, url=shared_node.url)
        with pytest.raises(Paused, match=f"tern topic resume {topic}"):
            await mq.send(topic, b"never")
        async with mq.consumer(topic, group="g") as consumer:
            assert (await asyncio.wait_for(consumer.__anext__(), 10)).body == b"before"
            await mq.admin.set_topic(topic, paused=False)
            await mq.send(topic, b"after")
            assert (await asyncio.wait_for(consumer.__anext__(), 10)).body == b"after"


async def test_one_consumer_is_paused_and_the_other_gets_everything(
    shared_node: Node, topic: str
) -> None:
    """J13: pause of one consumer, by its session."""
    url = shared_node.url
    async with ternmq.connect(url, app="one") as first, ternmq.connect(url, app="two") as mq:
        async with (
            first.consumer(topic, group="g") as one,
            mq.consumer(topic, group="g") as two,
        ):
            [group] = await mq.admin.groups(topic, "g")
            sessions = {member.app: member.session for member in group.members}
            pause = ("group", "pause", topic, "g", "--member", sessions["one"][:12])
            shown = tern(*pause, "--json", url=url).json()
            assert shown["settings"]["paused_sessions"] == [sessions["one"]]
            waiting = asyncio.ensure_future(one.__anext__())
            for number in range(20):
                await mq.send(topic, b"%d" % number)
                message = await asyncio.wait_for(two.__anext__(), 10)
                assert message.body == b"%d" % number
                message.ack()
            assert not waiting.done()
            await mq.admin.pause_consumer(topic, "g", sessions["two"])
            await mq.admin.pause_consumer(topic, "g", sessions["one"], paused=False)
            await mq.send(topic, b"mine")
            assert (await asyncio.wait_for(waiting, 10)).body == b"mine"
        [group] = await mq.admin.groups(topic, "g")
        assert group.settings.paused_sessions == []  # A pause ends with its session.


def random_bytes(count: int) -> bytes:
    """So many that compression does not make fewer."""
    return b"".join(uuid4().bytes for _ in range(count // 16))


def test_limits_and_pauses_survive_kill_9_of_the_broker(
    node_factory: NodeFactory, topic: str
) -> None:
    """J13: durable when answered."""
    node = node_factory()
    with ternmq.sync.connect(node.url) as mq:
        mq.admin.create_topic(topic)
        mq.admin.set_topic(topic, rate=100)
        mq.admin.set_limit("shop", rate=50)
        mq.admin.create_group(topic, "g", ternmq.Start())
        mq.admin.set_group(topic, "g", in_flight_max=7, rate=9, backlog_alarm=5)
        mq.admin.set_topic(topic, consume_paused=True)
    node.kill()
    node.restart()

    assert tern("topic", "show", topic, "--json", url=node.url).json()["rate"] == 100
    assert holds(50, *sent(node.url, topic, app="shop", seconds=1.0))
    with ternmq.sync.connect(node.url) as mq, mq.consumer(topic, group="g") as consumer:
        [group] = mq.admin.groups(topic, "g")
        assert (group.settings.in_flight_max, group.settings.rate) == (7, 9)
        assert group.ledger.in_flight == 0
        mq.admin.set_topic(topic, consume_paused=False)
        assert next(consumer).sequence == 0
        [group] = mq.admin.groups(topic, "g")
        assert 0 < group.ledger.in_flight <= 7
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
