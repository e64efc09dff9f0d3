"""Replays into one group, and bringing back only what failed: the real broker in this process."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ternmq
from ternmq.client.admin.replay import Replay
from ternmq.core.errors import BadRequest, GroupNotFound, OverLimit
from ternmq.testing import node
from ternmq.wire.messages.read import GroupReplay, GroupReplayed
from ternmq.wire.numbers import Command
from tests.integration.broker_groups import several
from tests.integration.delivery.test_delivery import take
from tests.waiting import until


@pytest.fixture
async def mq() -> AsyncIterator[Any]:
    async with node() as url, ternmq.connect(url, app="test") as client:
        yield client


async def lines(mq: Any, group: str) -> dict[str, Any]:
    return {line.lane: line for line in await mq.admin.ledger(group=group)}


async def test_a_replay_reaches_one_group_alone_with_the_same_ids(mq: Any) -> None:
    """J14: into another group, its private lane."""
    sent = await mq.send_many("orders", [b"%d" % n for n in range(600)])
    await mq.admin.create_group("orders", "again", ternmq.Start(at="latest"))
    async with mq.consumer("orders", group="other", start="latest") as other:
        done = await mq.admin.replay(Replay(topic="orders", into="again", start=100, end=500))
        async with mq.consumer("orders", group="again") as consumer:
            got = await take(consumer, 400)
            for message in got:
                message.ack()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(aiter(other)), 0.1)

    assert (done.total, done.looked, done.copied) == (400, 400, 400)
    assert [m.body for m in got] == [b"%d" % n for n in range(100, 500)]
    assert [m.id for m in got] == [sent[n].id for n in range(100, 500)]
    assert got[0].properties["%replayed"] == 100
    assert {(m.topic, m.attempt) for m in got} == {("orders", 1)}
    found = await lines(mq, "again")
    assert (found["private"].acked, found["topic"].total) == (400, 0)


async def test_a_replay_filters_and_a_dry_run_only_counts(mq: Any) -> None:
    for number in range(20):
        await mq.send("orders", b"%d" % number, tag="ab"[number % 2], properties={"n": number})
    await mq.admin.create_group("orders", "g", ternmq.Start(at="latest"))
    wanted = Replay(topic="orders", into="g", tag="a", filter="n >= 10")

    dry = await mq.admin.replay(replace(wanted, dry_run=True))
    before = await lines(mq, "g")
    done = await mq.admin.replay(wanted)
    async with mq.consumer("orders", group="g") as consumer:
        got = await take(consumer, 5)

    assert (dry.copied, dry.filtered, set(before)) == (5, 15, {"topic"})
    assert (done.copied, done.filtered) == (5, 15)
    assert [m.body for m in got] == [b"10", b"12", b"14", b"16", b"18"]


async def test_a_replay_done_again_under_its_name_copies_nothing_twice(tmp_path: Path) -> None:
    """Safe against double, also over a restart; rows are chosen by a filter with gaps."""
    async with node(data_dir=tmp_path) as url, ternmq.connect(url, app="test") as mq:
        for number in range(40):
            await mq.send("orders", b"%d" % number, tag="ab"[number % 4 == 0])
        await mq.admin.create_group("orders", "g", ternmq.Start(at="latest"))
        wanted = Replay(topic="orders", into="g", tag="b", end=20)
        first = await mq.admin.replay(wanted)
        same = await mq.admin.replay(wanted)
    async with node(data_dir=tmp_path) as url, ternmq.connect(url, app="test") as mq:
        rest = await mq.admin.replay(Replay(topic="orders", into="g", tag="b", name=wanted.name))
        async with mq.consumer("orders", group="g") as consumer:
            got = await take(consumer, 10)
        total = (await lines(mq, "g"))["private"].total

    assert (first.copied, same.copied, rest.copied) == (5, 0, 5)
    assert [int(m.body) for m in got] == list(range(0, 40, 4))
    assert total == 10


async def test_a_replay_needs_a_group_that_is_there_and_a_filter_that_parses(mq: Any) -> None:
    await mq.send("orders", b"x")
    with pytest.raises(GroupNotFound, match="tern group create"):
        await mq.admin.replay(Replay(topic="orders", into="nobody"))
    with pytest.raises(BadRequest, match="rate"):
        await mq.admin.replay(Replay(topic="orders", into="nobody", rate=-1))
    await mq.admin.create_group("orders", "g", ternmq.Start(at="latest"))
    with pytest.raises(ternmq.BadFilter):
        await mq.admin.replay(Replay(topic="orders", into="g", filter="a >"))


async def test_one_step_of_a_replay_runs_at_a_time(mq: Any) -> None:
    await mq.send_many("orders", [b"x"] * 1000)
    await mq.admin.create_group("orders", "g", ternmq.Start(at="latest"))
    link = mq.cluster.broker((await mq.cluster.some_masters())[0])
    step = GroupReplay(
        topic="orders", into="g", first=0, end=1000, replay=Replay(topic="t", into="g").name
    )

    both = await asyncio.gather(
        *(mq.cluster.ask(link, Command.GROUP_REPLAY, step, GroupReplayed) for _ in range(2)),
        return_exceptions=True,
    )

    assert sorted(type(one).__name__ for one in both) == ["GroupReplayed", "OverLimit"]
    assert any(isinstance(one, OverLimit) for one in both)
    assert (await lines(mq, "g"))["private"].total == 1000


async def test_what_waits_for_a_retry_comes_at_once_as_attempt_1(mq: Any) -> None:
    """J14: only what failed; durable when answered."""
    await mq.send_many("orders", [b"a", b"b", b"c"])
    async with mq.consumer("orders", group="g") as consumer:
        for message in await take(consumer, 3):
            if message.body == b"b":
                await message.ack()
            else:
                message.retry(after=3600)
        await consumer.flush()
        preview = await mq.admin.retry_group("orders", "g", dry_run=True)
        waiting = (await lines(mq, "g"))["topic"].waiting_retry
        brought = await mq.admin.retry_group("orders", "g")
        got = await take(consumer, 2)

    assert (preview, waiting, brought) == (2, 2, 2)
    assert [(m.body, m.attempt) for m in got] == [(b"a", 1), (b"c", 1)]


async def test_a_failing_key_comes_at_once_in_an_ordered_group(mq: Any) -> None:
    for number in range(4):
        await mq.send("orders", b"%d" % number, order_key="k")
    async with mq.consumer("orders", group="g", ordered=True) as consumer:
        [first] = await take(consumer, 1)
        first.retry(after=3600)
        await consumer.flush()
        assert await mq.admin.retry_group("orders", "g") == 1
        seen = []
        async with asyncio.timeout(10):
            async for message in consumer:
                seen.append(message.body)
                message.ack()
                if len(seen) == 4:
                    break

    assert seen == [b"0", b"1", b"2", b"3"]


async def test_a_private_lane_on_a_broker_group_that_joins_later_is_shown_as_its_topic() -> None:
    """A consumer's JOIN makes the lane where there is none yet: it lies beside the same topic."""
    async with several("a") as cluster, ternmq.connect(cluster.url, app="test") as mq:
        await mq.send_many("orders", [b"%d" % n for n in range(10)])
        await mq.admin.create_group("orders", "again", ternmq.Start(at="latest"))
        await mq.admin.replay(Replay(topic="orders", into="again"))
        await cluster.add("b")
        async with ternmq.connect(cluster.url) as other, other.consumer("orders", group="again"):

            async def shown() -> list[tuple[str, str, str]]:
                found = await mq.admin.group_figures(group="again")
                return sorted((each.broker_group, each.topic, each.lane) for each in found)

            async def joined() -> bool:
                return len(await shown()) == 4

            await until(joined, "the consumer is at both broker groups")
            found = await shown()

    assert found == [
        ("a", "orders", "private"),
        ("a", "orders", "topic"),
        ("b", "orders", "private"),
        ("b", "orders", "topic"),
    ]
