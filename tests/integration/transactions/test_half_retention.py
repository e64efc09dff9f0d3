"""Old segments and half messages: nothing undecided goes, nobody finds what is gone (R11, R16)."""

from pathlib import Path
from typing import Any

import ternmq
from ternmq.testing import TurnedClock
from tests.integration.storage.test_retention import HOURS, broker, fill, first_of, lines
from tests.integration.transactions.test_delayed_rows import columns
from tests.waiting import until

AGE: dict[str, Any] = {"retention_ms": 3_600_000}


async def log_start(mq: Any) -> int:
    [status] = await mq.admin.broker_status()
    return int(status.log_start)


async def test_a_segment_with_undecided_messages_stays_and_ages_from_their_commit(
    tmp_path: Path,
) -> None:
    """R11, R16: staged long ago, committed now: kept as long as other messages of now."""
    clock = TurnedClock()
    async with broker(data_dir=tmp_path, clock=clock, **AGE) as mq:
        mq.transaction_checker(lambda question: "unknown")
        await mq.admin.create_topic("orders")
        await mq.admin.create_group("orders", "g", ternmq.Start(at="earliest"))
        tx = mq.transaction()
        await tx.send("orders", b"late")
        await fill(mq, "filler", 2)
        clock.turn(3 * HOURS)
        await mq.send("orders", b"young")
        await fill(mq, "other", 1)
        assert (await log_start(mq), await first_of(mq, "filler")) == (0, 0)
        await tx.commit()
        clock.turn(0.9 * HOURS)
        assert [message.body async for message in mq.read("orders")] == [b"young", b"late"]
        clock.turn(0.2 * HOURS)
        await until(lambda: _gone(mq))
        assert [message.body async for message in mq.read("orders")] == []
    async with broker(data_dir=tmp_path, clock=clock, **AGE) as mq:
        assert await first_of(mq, "orders") == 2
        assert await mq.find(id=tx.receipts[0].id) == []
        line = (await lines(mq, "g"))["topic"]
        assert (line.total, line.expired) == (2, 2)


async def _gone(mq: Any) -> bool:
    return await first_of(mq, "orders") == 2


async def test_a_segment_that_must_go_takes_its_late_commits_along(tmp_path: Path) -> None:
    """R16: the log is too large. The group hears of each row; what is in flight is copied."""
    async with broker(data_dir=tmp_path, retention_size="25MiB") as mq:
        mq.transaction_checker(lambda question: "unknown")
        tx = mq.transaction()
        await tx.send("orders", b"late")
        await fill(mq, "filler", 1)
        await mq.send("orders", b"before")
        await tx.commit()
        await mq.send("orders", b"after")
        await mq.admin.create_group("orders", "g", ternmq.Start(at="earliest"))
        await fill(mq, "filler", 3)
        await until(lambda: _gone(mq))
        assert [message.body async for message in mq.read("orders")] == [b"after"]
        line = (await lines(mq, "g"))["topic"]
        assert (line.total, line.expired, line.ready) == (3, 2, 1)


async def test_a_segment_with_messages_that_a_delay_server_has_still_to_take_stays(
    tmp_path: Path,
) -> None:
    """P2: committed with a due time, and the delay server was away for longer than messages are
    kept."""
    clock = TurnedClock()
    small: dict[str, Any] = {**AGE, "data_dir": tmp_path, "clock": clock}
    async with broker(delay_server=False, **small) as mq:
        task = mq.detached("job", attempt=1, fenced=False)
        await task.send_columns("orders", columns(clock, b"x", after_ms=86_400_000), later="main")
        await mq.commit_detached("job", [1], "main", fenced=False)
        await fill(mq, "filler", 3)
        clock.turn(5 * HOURS)
        await fill(mq, "other", 1)
        assert (await log_start(mq), await first_of(mq, "filler")) == (0, 0)
    async with broker(**small) as mq:
        await until(lambda: _log_moved(mq))
        clock.turn(24 * HOURS)
        await until(lambda: _is_there(mq))


async def _log_moved(mq: Any) -> bool:
    return await log_start(mq) > 0


async def _is_there(mq: Any) -> bool:
    return [message.body async for message in mq.read("orders")] == [b"x"]
