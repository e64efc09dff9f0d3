"""Old messages go, and nothing of them silently: the real broker in this process (R16)."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import ternmq
from ternmq.core.errors import DiskFull
from ternmq.storage.files.disk import RealDisk
from ternmq.testing import TurnedClock, node
from tests.integration.delivery.test_delivery import take
from tests.waiting import until

BODY = 1024 * 1024
QUICK: dict[str, Any] = {
    "segment_size": "8MiB",
    "retention_interval_ms": 100,
    "checkpoint_interval_ms": 100,
}
HOURS = 3_600.0


class Disk(RealDisk):
    """The real one, as full as a test says."""

    def __init__(self) -> None:
        self.percent = 10

    def free(self, path: Path) -> tuple[int, int]:
        size = 100 * 1024**3
        return size * (100 - self.percent) // 100, size


@asynccontextmanager
async def broker(**settings: Any) -> AsyncIterator[Any]:
    async with node(**QUICK, **settings) as url, ternmq.connect(url, app="test") as mq:
        yield mq


async def fill(mq: Any, topic: str, segments: int) -> None:
    """So many segments of large messages."""
    for _ in range(segments * 8):
        await mq.send(topic, os.urandom(BODY))


async def first_of(mq: Any, topic: str) -> int:
    [status] = await mq.admin.broker_status([topic])
    return int(status.topics[0].first)


async def lines(mq: Any, group: str) -> dict[str, Any]:
    found = {line.lane: line for line in await mq.admin.ledger(group=group)}
    states = ("ready", "in_flight", "waiting_retry", "acked", "filtered", "skipped", "dead")
    for line in found.values():
        assert line.total == sum(getattr(line, state) for state in (*states, "expired"))
    return found


async def test_old_segments_go_and_what_nobody_read_is_expired(tmp_path: Path) -> None:
    """R16: by age, consumed or not; sequences go on, also after a restart."""
    clock = TurnedClock()
    async with broker(data_dir=tmp_path, clock=clock) as mq:
        await mq.send("rare", b"only one")
        await mq.admin.create_group("orders", "g", ternmq.Start(at="earliest"))
        await fill(mq, "orders", 2)
        clock.turn(71 * HOURS)
        await asyncio.sleep(0.3)
        assert await first_of(mq, "orders") == 0
        await mq.send("orders", b"young")
        clock.turn(2 * HOURS)
        await until(lambda: _at_least(mq, "orders", 14))
        kept = await first_of(mq, "orders")
        line = (await lines(mq, "g"))["topic"]
        assert (line.expired, line.ready, line.total) == (kept, 17 - kept, 17)
        read = [m.sequence async for m in mq.read("orders", start=0)]
        assert read == list(range(kept, 17))  # Jumps to the first that is there.
    segments = sorted(path.name for path in (tmp_path / "broker" / "message").iterdir())
    tables = sorted(path.name for path in (tmp_path / "broker" / "consume").iterdir())
    assert len(segments) == 1
    assert [name[:20] for name in tables] == [name[:20] for name in segments]
    async with broker(data_dir=tmp_path, clock=clock) as mq:
        assert (await mq.send("rare", b"second")).sequence == 1
        assert (await mq.send("orders", b"next")).sequence == 17
        line = (await lines(mq, "g"))["topic"]
        assert (line.expired, line.total) == (kept, 18)
        assert await first_of(mq, "rare") == 1


async def _at_least(mq: Any, topic: str, first: int) -> bool:
    return await first_of(mq, topic) >= first


async def test_what_waits_for_a_retry_is_copied_forward(tmp_path: Path) -> None:
    """R16: into the group's private lane, with its id; the ledger says both."""
    clock = TurnedClock()
    async with broker(data_dir=tmp_path, clock=clock) as mq:
        await mq.send_many("orders", [b"done", b"waits", b"waits too"])
        async with mq.consumer("orders", group="g") as consumer:
            done, *others = await take(consumer, 3)
            await done.ack()
            for message in others:
                message.retry(after=100 * HOURS)
            await consumer.flush()
        await fill(mq, "filler", 2)
        clock.turn(73 * HOURS)
        await until(lambda: _at_least(mq, "orders", 3))
        found = await lines(mq, "g")
        async with mq.consumer("orders", group="g") as consumer:
            again = await take(consumer, 2)

    assert (found["topic"].acked, found["topic"].expired, found["topic"].total) == (1, 2, 3)
    assert (found["private"].ready, found["private"].total) == (2, 2)
    assert [(m.id, m.body, m.topic) for m in again] == [(m.id, m.body, "orders") for m in others]


async def test_a_segment_with_messages_in_flight_is_put_off_for_a_while(tmp_path: Path) -> None:
    """R16: in use, deferred up to a limit; then it goes and what is in flight is copied."""
    clock = TurnedClock()
    async with broker(data_dir=tmp_path, clock=clock, lease_ms=86_400_000) as mq:
        await mq.send("orders", b"held")
        async with mq.consumer("orders", group="g") as consumer:
            [held] = await take(consumer, 1)
            await fill(mq, "filler", 2)
            clock.turn(73 * HOURS)
            await mq.admin.groups()  # The lease is a day long; keep it.
            await asyncio.sleep(0.3)
            before = await first_of(mq, "orders")
            clock.turn(121)
            await until(lambda: _at_least(mq, "orders", 1))
            [again] = await take(consumer, 1)
            assert (before, again.id, again.body) == (0, held.id, b"held")


async def test_what_a_group_still_needs_can_be_kept(tmp_path: Path) -> None:
    """R16: unless told to keep."""
    clock = TurnedClock()
    async with broker(data_dir=tmp_path, clock=clock, retention_keep_unread=True) as mq:
        await mq.send("orders", b"unread")
        await mq.admin.create_group("orders", "g", ternmq.Start(at="earliest"))
        await fill(mq, "filler", 2)
        clock.turn(73 * HOURS)
        await asyncio.sleep(0.4)
        assert await first_of(mq, "orders") == 0
        async with mq.consumer("orders", group="g") as consumer:
            [message] = await take(consumer, 1)
            await message.ack()
        await until(lambda: _at_least(mq, "orders", 1))
        assert (await lines(mq, "g"))["topic"].acked == 1


async def test_the_oldest_go_when_the_log_is_larger_than_allowed(tmp_path: Path) -> None:
    async with broker(data_dir=tmp_path, retention_size="17MiB") as mq:
        await fill(mq, "orders", 4)
        await until(lambda: _at_least(mq, "orders", 14))
        await asyncio.sleep(0.3)
        [status] = await mq.admin.broker_status(["orders"])

    assert 8 * BODY < status.log_end - status.log_start <= 17 * BODY


async def test_a_full_disk_removes_the_oldest_and_then_refuses(tmp_path: Path) -> None:
    """R16: 75 % nothing young goes, 85 % the oldest go, 90 % messages are refused."""
    disk = Disk()
    async with broker(data_dir=tmp_path, disk=disk) as mq:
        await fill(mq, "orders", 2)
        disk.percent = 80
        await asyncio.sleep(0.3)
        assert await first_of(mq, "orders") == 0
        disk.percent = 86
        await until(lambda: _at_least(mq, "orders", 7))
        disk.percent = 91
        await asyncio.sleep(1.1)  # Free space is looked at every second.
        with pytest.raises(DiskFull, match="disk_full_percent"):
            await mq.send("orders", b"x")
        [status] = await mq.admin.broker_status()
        assert "almost full" in status.state


async def test_a_topic_may_keep_less_than_the_others(tmp_path: Path) -> None:
    """A shorter time is a trim: the rows are gone for everybody, the bytes stay."""
    clock = TurnedClock()
    async with broker(data_dir=tmp_path, clock=clock) as mq:
        await mq.send_many("orders", [b"old", b"old too"])
        await mq.admin.create_group("orders", "g", ternmq.Start(at="earliest"))
        await mq.admin.set_topic("orders", keep_ms=3_600_000)
        clock.turn(2 * HOURS)
        await mq.send("orders", b"new")
        await until(lambda: _at_least(mq, "orders", 2))
        async with mq.consumer("orders", group="g") as consumer:
            [message] = await take(consumer, 1)
        line = (await lines(mq, "g"))["topic"]

    assert (message.body, line.expired, line.total) == (b"new", 2, 3)


async def test_dead_letters_are_open_for_three_days_from_the_moment_of_death() -> None:
    """R13: kept 3 days; expired ones are neither listed nor sent again, and are counted."""
    clock = TurnedClock()
    async with broker(clock=clock) as mq:
        await mq.send_many("orders", [b"a", b"b"])
        async with mq.consumer("orders", group="g", prefetch=1) as consumer:
            [first] = await take(consumer, 1)
            await first.reject("bad")
            clock.turn(50 * HOURS)
            [second] = await take(consumer, 1)
            await second.reject("bad")
        assert await mq.admin.open_dead_letters("g") == [(0, 2)]
        clock.turn(30 * HOURS)
        await until(lambda: _open(mq, [(1, 2)]))
        refused = await mq.admin.resend_dead_letters("g", [(0, 1)])
        await until(lambda: _at_least(mq, "%dead.g", 1))
        left = [m.body async for m in mq.read("%dead.g")]
        assert (refused.handled, left) == (0, [b"b"])
        await mq.admin.set_group("orders", "g", dead_letter_keep_ms=86_400_000)
        await until(lambda: _open(mq, []))
        assert await mq.admin.expired_dead_letters("g") == 2
        await mq.admin.set_group("orders", "g", dead_letter_keep_ms=0)
        assert (await lines(mq, "g"))["topic"].dead == 2


async def _open(mq: Any, expected: list[tuple[int, int]]) -> bool:
    return bool(await mq.admin.open_dead_letters("g") == expected)
