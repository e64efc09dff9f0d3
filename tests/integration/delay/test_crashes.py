"""Messages for later when things go wrong: kill -9 at every stage, a full disk, a clock that jumps.

Always the same question at the end: is every accepted message in the broker exactly once, none
before its time, and does the ledger say so?
"""

import asyncio
import os
import signal
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

import ternmq
from ternmq import CancelResult
from tests.integration.delay.test_delays import arrived, settled
from tests.integration.faults import needs_root
from tests.integration.processes import Node, NodeFactory
from tests.integration.storage.test_full_disk import small_disk
from tests.integration.turned_clock import SharedClock
from tests.waiting import until, wait_until

TOPIC = "orders"
BODY = bytes(1000)


def delay_files(node: Node, folder: str) -> list[Path]:
    return sorted((node.data_dir / "delay" / folder).glob("*.log"))


def gone(path: Path) -> bool:
    return not path.exists()


async def exactly_once(url: str, count: int, seconds: float = 60.0) -> None:
    async with ternmq.connect(url) as mq:
        bodies = Counter(await arrived(mq, TOPIC, count, seconds))
        assert set(bodies) == {str(at) for at in range(count)}
        assert set(bodies.values()) == {1}, "none twice"
        await settled(mq, TOPIC, (count, 0, count, 0))


async def test_kill_9_in_the_middle_of_an_hour_and_of_dispatch(node_factory: NodeFactory) -> None:
    """Q8: due over two seconds, and the node dies again and again while they go out."""
    count = 6_000
    node = node_factory()
    async with ternmq.connect(node.url) as mq:
        start_ms = int(time.time() * 1000) + 800
        rows = [
            ternmq.Outgoing(body=b"%d" % at, due_at_ms=start_ms + at // 3) for at in range(count)
        ]
        sent = await mq.send_many(TOPIC, rows)
        assert not sent.failures
    for pause in (0.0, 0.2):
        wait_until(lambda: time.time() * 1000 > start_ms, "the first being due", seconds=20)
        await asyncio.sleep(pause)
        node.kill()
        node.start()

    await exactly_once(node.url, count)
    assert node.stop() == 0


async def test_kill_9_while_the_log_is_replayed(node_factory: NodeFactory) -> None:
    """What was answered is there, however often the start that reads it is killed."""
    count = 40_000
    node = node_factory()
    async with ternmq.connect(node.url) as mq:
        at = datetime.now(UTC) + timedelta(seconds=3)
        bodies = [b"%d" % at for at in range(count)]
        sent = await mq.send_many(TOPIC, bodies, at=at)
        assert not sent.failures
    node.kill()
    for pause in (0.1, 0.25):
        node.launch()
        await asyncio.sleep(pause)  # Somewhere between the first byte read and the ready line.
        os.kill(node.process.pid, signal.SIGKILL)
        node.process.wait(10)
    node.start()

    await exactly_once(node.url, count)


async def test_kill_9_while_old_files_are_removed(
    tmp_path: Path, node_factory: NodeFactory
) -> None:
    """Hours that have passed go away, also when the node dies in between; what waits stays."""
    clock = SharedClock(tmp_path / "clock")
    node = node_factory(
        prefix=clock.prefix,
        environment={"TERN_DELAY_HOUR_MS": "1m", "TERN_CHECKPOINT_INTERVAL_MS": "100"},
    )
    minutes = 20
    async with ternmq.connect(node.url) as mq:
        start_ms = int(clock.now() * 1000)
        rows = [
            ternmq.Outgoing(body=b"%d" % at, due_at_ms=start_ms + at * 60_000 // 10)
            for at in range(minutes * 10)
        ]
        await mq.send_many(TOPIC, rows)
        await mq.send("far", b"far", at=datetime.now(UTC) + timedelta(days=700))
    wait_until(lambda: len(delay_files(node, "schedule")) >= minutes, "schedule logs")
    for _ in range(2):
        files = delay_files(node, "schedule")
        clock.turn(minutes * 60 / 2)
        wait_until(partial(gone, files[0]), "the first file gone", seconds=30)
        node.kill()
        node.start()
    clock.turn(120)
    await exactly_once(node.url, minutes * 10)
    wait_until(lambda: len(delay_files(node, "schedule")) <= 2, "old files gone", seconds=30)
    async with ternmq.connect(node.url) as mq:
        assert len(await mq.admin.delays.rows(topic="far")) == 1


async def test_a_cancel_outlives_a_crash(node_factory: NodeFactory) -> None:
    node = node_factory()
    async with ternmq.connect(node.url) as mq:
        soon = datetime.now(UTC) + timedelta(seconds=2)
        stays, goes, moves = [
            await mq.send(TOPIC, body, at=soon) for body in (b"stays", b"goes", b"moves")
        ]
        assert await mq.cancel(goes) is CancelResult.CANCELLED
        assert await mq.reschedule(moves, delay=3600) is CancelResult.RESCHEDULED
    node.kill()
    node.start()
    async with ternmq.connect(node.url) as mq:
        assert await mq.cancel(goes.id) is CancelResult.CANCELLED
        assert await arrived(mq, TOPIC, 1) == ["stays"]
        assert await mq.cancel(stays) is CancelResult.ALREADY_DISPATCHED
        (row,) = await mq.admin.delays.rows()
        assert row.id == moves.id_bytes
        await settled(mq, TOPIC, (3, 1, 1, 1))


async def test_two_years_pass(tmp_path: Path, node_factory: NodeFactory) -> None:
    """Up to two years ahead, and a node that was away when its time came."""
    clock = SharedClock(tmp_path / "clock")
    node = node_factory(prefix=clock.prefix)
    async with ternmq.connect(node.url) as mq:
        now = datetime.now(UTC)
        for days in (1, 365, 730):
            await mq.send(TOPIC, str(days).encode(), at=now + timedelta(days=days))
        clock.turn(86_400 + 1)
        assert await arrived(mq, TOPIC, 1) == ["1"]
    assert node.stop() == 0
    clock.turn(500 * 86_400)
    node.start()
    async with ternmq.connect(node.url) as mq:
        assert await arrived(mq, TOPIC, 2) == ["1", "365"]
        clock.turn(300 * 86_400)
        assert await arrived(mq, TOPIC, 3) == ["1", "365", "730"]
        await settled(mq, TOPIC, (3, 0, 3, 0))


async def test_a_clock_that_jumps_fires_nothing_twice_and_stalls_nothing(
    tmp_path: Path, node_factory: NodeFactory
) -> None:
    """A day back: what is not out waits for its time. A day forth: it goes out, once."""
    clock = SharedClock(tmp_path / "clock")
    node = node_factory(prefix=clock.prefix)
    async with ternmq.connect(node.url) as mq:
        await mq.send(TOPIC, b"first", delay=0.2)
        await arrived(mq, TOPIC, 1)
        hour_ahead = datetime.fromtimestamp(clock.now() + 3600, UTC)
        await mq.send(TOPIC, b"second", at=hour_ahead)
        clock.jump(-86_400)
        await mq.send(TOPIC, b"third", delay=0.2)
        assert await arrived(mq, TOPIC, 2) == ["first", "third"]
        clock.jump(86_400 + 3601)
        assert await arrived(mq, TOPIC, 3) == ["first", "third", "second"]
        await mq.send(TOPIC, b"fourth", delay=0.2)
        assert await arrived(mq, TOPIC, 4) == ["first", "third", "second", "fourth"]
        await settled(mq, TOPIC, (4, 0, 4, 0))
    assert node.stderr_text().count("clock of this machine jumped") == 2


@needs_root
@pytest.mark.parametrize("free_min", ["8MiB", pytest.param("0", marks=pytest.mark.long)])
async def test_a_full_disk_refuses_what_is_for_later_and_loses_nothing(
    free_min: str, tmp_path: Path, node_factory: NodeFactory
) -> None:
    """R14: nothing acknowledged is lost, and with space again everything goes on."""
    with small_disk(tmp_path, "tmpfs") as place:
        ballast = place / "ballast"
        ballast.write_bytes(bytes(28 << 20))
        node = node_factory(
            environment={"TERN_SEGMENT_SIZE": "8MiB", "TERN_DISK_FREE_MIN": free_min}, start=False
        )
        node.data_dir = place / "data"
        node.start()
        async with ternmq.connect(node.url, compression="none") as mq:
            due = datetime.now(UTC) + timedelta(seconds=5)
            safe = 0
            with pytest.raises(ternmq.DiskFull):
                while True:
                    sent = await mq.send_many(TOPIC, [BODY] * 100, at=due)
                    safe += 100 - sum(len(rows) for rows, _ in sent.failures)
            assert safe >= 1000
            ballast.unlink()
            await until(partial(mq.send, TOPIC, BODY, at=due), ignoring=ternmq.DiskFull)
            assert len(await arrived(mq, TOPIC, safe + 1, seconds=40)) == safe + 1
            await settled(mq, TOPIC, (safe + 1, 0, safe + 1, 0))
        assert node.stop() == 0
