"""A delay server of its own that dies at exact points: strace kills it in the middle of a system
call (Q8, R7). The broker lives on, so what it has got and what it gets again can be told apart.
"""

import asyncio
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

import ternmq
from ternmq import CancelResult
from ternmq.core.units import HOUR_MS
from tests.integration.delay.test_delays import arrived, known, pending, settled
from tests.integration.faults import WRITES, injected, needs_strace
from tests.integration.processes import DelayServer, Node, NodeFactory
from tests.integration.turned_clock import SharedClock
from tests.waiting import until, wait_until

SETTINGS = {
    "TERN_DELAY_TICK_MS": "10",
    "TERN_DELAY_MAX_DAYS": "2",
    "TERN_CHECKPOINT_INTERVAL_MS": "100",
}


def hour_file(server: DelayServer, folder: str, due_ms: int, hour_ms: int = HOUR_MS) -> Path:
    """Named by UTC milliseconds, whatever the time zone of the machine."""
    return server.data_dir / "delay" / folder / f"{due_ms - due_ms % hour_ms:017d}.log"


async def send_apart(node: Node, server: DelayServer, topic: str, due_ms: int, count: int) -> None:
    async with ternmq.connect(node.url) as mq:
        await known(mq, server.name)
        rows = [ternmq.Outgoing(body=b"%d" % at, due_at_ms=due_ms) for at in range(count)]
        sent = await mq.send_many(topic, rows)
        assert not sent.failures


async def all_once(node: Node, server: DelayServer, topic: str, count: int) -> None:
    async with ternmq.connect(node.url) as mq:
        await known(mq, server.name)
        bodies = Counter(await arrived(mq, topic, count, 40))
        assert bodies == Counter(str(at) for at in range(count))
        await settled(mq, topic, (count, 0, count, 0))
        assert len(await arrived(mq, topic, count)) == count


async def touch(node: Node, server: DelayServer, due_ms: int) -> None:
    """Make the files of an hour: strace must find them by name."""
    async with ternmq.connect(node.url) as mq:
        await known(mq, server.name)
        row = ternmq.Outgoing(body=b"", due_at_ms=due_ms)
        (receipt,) = await mq.send_many("touch", [row])
        assert await mq.cancel(receipt) is CancelResult.CANCELLED


@needs_strace
async def test_kill_9_between_intent_dispatch_and_done(
    tmp_path: Path, node_factory: NodeFactory
) -> None:
    """Before the intent is written, before it is synced, and when the broker has the batch and
    only "done" is missing: each message is in the broker exactly once. The log that is written
    first lies on a disk of its own."""
    clock = SharedClock(tmp_path / "clock")
    node = node_factory(arguments=["--no-delay"])
    server = node_factory.delay_server(node, environment=SETTINGS, prefix=clock.prefix, start=False)
    wal = server.output_dir / "wal"
    server.arguments = ["--wal-dir", str(wal)]
    server.start()
    points = {"intent": f"{WRITES}:when=1", "sync": "fdatasync:when=1", "done": f"{WRITES}:when=2"}
    async with ternmq.connect(node.url) as mq:
        with pytest.raises(ternmq.BadRequest, match="2 days"):
            await mq.send("far", b"x", delay=timedelta(days=3))
    for name, fault in points.items():
        due_ms = int(clock.now() * 1000) + 600_000
        await send_apart(node, server, name, due_ms, 50)
        path = server.data_dir / "delay" / "decisions" / f"{0:020d}.log"
        with injected(server, f"{fault}:signal=KILL", paths=[path]):
            clock.turn(600)
            wait_until(lambda: not server.running, f"the {name}", seconds=40)
        server.start()
        await all_once(node, server, name, 50)
    assert list(wal.glob("*.log"))
    assert not (server.data_dir / "delay" / "wal").exists()


@needs_strace
@pytest.mark.long
async def test_kill_9_while_rows_are_scheduled_and_while_old_hours_are_removed(
    tmp_path: Path, node_factory: NodeFactory
) -> None:
    """In the write and in the sync of a schedule log, and in the removal of its file."""
    clock = SharedClock(tmp_path / "clock")
    node = node_factory(arguments=["--no-delay"])
    settings = SETTINGS | {"TERN_DELAY_HOUR_MS": "1m"}
    server = node_factory.delay_server(node, environment=settings, prefix=clock.prefix)
    for name, fault in {"write": f"{WRITES}:when=1", "sync": "fdatasync:when=1"}.items():
        due_ms = int(clock.now() * 1000) + 600_000
        await touch(node, server, due_ms)
        path = hour_file(server, "schedule", due_ms, 60_000)
        with injected(server, f"{fault}:signal=KILL", paths=[path]):
            await send_apart(node, server, name, due_ms, 50)
            wait_until(lambda: not server.running, name, seconds=40)
        server.start()
        async with ternmq.connect(node.url) as mq:
            await known(mq, server.name)
            assert await pending(mq, name) == (50, 50, 0, 0)
        if name == "sync":
            break
        clock.turn(601)
        await all_once(node, server, name, 50)
    clock.turn(601)
    await all_once(node, server, name, 50)
    with injected(server, "unlink:signal=KILL:when=1", paths=[path]):
        clock.turn(120)
        wait_until(lambda: not server.running, "a removal", seconds=40)
    server.start()
    wait_until(lambda: not path.exists(), "the old hour gone", seconds=20)
    wait_until(lambda: not list((server.data_dir / "delay" / "dispatch").glob("*.log")), "dispatch")
    await all_once(node, server, name, 50)


@needs_strace
async def test_a_failed_fsync_is_told_to_producers_and_a_restart_recovers(
    tmp_path: Path, node_factory: NodeFactory
) -> None:
    """R14: what was answered is not lost and goes out, nothing is answered any more."""
    node = node_factory(arguments=["--no-delay"])
    clock = SharedClock(tmp_path / "clock")
    server = node_factory.delay_server(node, environment=SETTINGS, prefix=clock.prefix)
    due_ms = int(clock.now() * 1000) + 600_000
    await send_apart(node, server, "orders", due_ms, 20)
    (wal,) = (server.data_dir / "delay" / "wal").glob("*.log")
    async with ternmq.connect(node.url, delivery_timeout=5) as mq:
        broken = injected(server, "fdatasync:error=EIO", paths=[wal])
        with broken, pytest.raises(ternmq.DiskFailed):
            await mq.send("orders", b"20", delay=1)
        for _ in range(2):
            with pytest.raises(ternmq.DiskFailed, match="restart"):
                await mq.send("orders", b"refused", delay=1)
        (status,) = await mq.admin.delays.status()
        assert "restart" in status.state
        clock.turn(600)
        bodies = await arrived(mq, "orders", 20, 40)
        assert sorted(map(int, bodies)) == list(range(20)), "what was stored goes out"
    server.kill()
    server.start()
    async with ternmq.connect(node.url) as mq:
        await known(mq, server.name)
        await mq.send("orders", b"after", delay=0.1)
        async with asyncio.timeout(20):
            bodies = []
            while "after" not in bodies:
                bodies = await arrived(mq, "orders", 21)
        # The one whose sync failed was never answered: it may be there, and then once.
        assert sorted(set(bodies)) == sorted(bodies)
        assert {"after", *map(str, range(20))} <= set(bodies) <= {"after", *map(str, range(21))}


async def test_kill_9_while_messages_fire_and_are_cancelled(node_factory: NodeFactory) -> None:
    """Whoever was told CANCELLED never sees it, whoever was told ALREADY_DISPATCHED sees it once,
    also when the server dies in between; asking again gives the same answer."""
    count = 400
    node = node_factory(environment={"TERN_DELAY_TICK_MS": "10"})
    results: dict[int, CancelResult] = {}
    async with ternmq.connect(node.url) as mq:
        start_ms = int(time.time() * 1000) + 700
        rows = [
            ternmq.Outgoing(body=b"%d" % at, due_at_ms=start_ms + 2 * at) for at in range(count)
        ]
        receipts = list(await mq.send_many("race", rows))

        async def change(at: int) -> None:
            due = (start_ms + 2 * at) / 1000
            await asyncio.sleep(max(0.0, due - time.time() + (at % 40 - 20) / 1000))
            try:
                async with asyncio.timeout(1.5):
                    if at % 5 == 4:
                        await mq.fire_now(receipts[at])
                    elif at % 5 == 3:
                        await mq.reschedule(receipts[at], delay=0.2)
                    results[at] = await mq.cancel(receipts[at])
            except (TimeoutError, ternmq.TernError):
                pass  # Nobody was told anything.

        changing = asyncio.gather(*(change(at) for at in range(count)))
        await until(lambda: time.time() * 1000 >= start_ms + count, every=0.005)
        node.kill()
        await changing
    node.start()
    async with ternmq.connect(node.url) as mq:
        for at, result in results.items():
            assert await mq.cancel(receipts[at]) is result, at
        cancelled = {at for at, result in results.items() if result is CancelResult.CANCELLED}
        others = {at for at, result in results.items() if result is CancelResult.ALREADY_DISPATCHED}
        assert cancelled
        assert others
        assert len(cancelled) + len(others) == len(results)

        async def nothing_waits() -> bool:
            return (await pending(mq, "race"))[1] == 0

        await until(nothing_waits, seconds=40)
        bodies = Counter(map(int, await arrived(mq, "race", 0)))
        assert set(bodies.values()) == {1}
        assert not set(bodies) & cancelled
        assert others <= set(bodies)
        # A cancel without an answer was done, or was not.
        assert set(range(count)) - set(bodies) <= cancelled | (set(range(count)) - set(results))
        assert await pending(mq, "race") == (count, 0, len(bodies), count - len(bodies))
