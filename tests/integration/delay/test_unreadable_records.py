"""A delay server that stored what no reader reads: it serves the rest, and says what it keeps.

The node is the real one, in this process, so that its door can be that of an older release while
the poison comes in (findings C1).
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import ternmq
from ternmq import CancelResult
from ternmq.batch.view import BatchView
from ternmq.testing import node
from ternmq.wire.messages.delays import DelayRow
from ternmq.wire.numbers import Command
from tests.integration.delay.test_delays import arrived, settled
from tests.integration.poisoned_batches import POISON, open_door, poisoned

SETTINGS: dict[str, Any] = {"delay_tick_ms": 20, "checkpoint_interval_ms": 300}
WITHOUT_IDS = "id without offsets"


async def poison(mq: ternmq.Client, topic: str, *what: str, after_ms: tuple[int, int]) -> None:
    connection = await mq.cluster.server("main", "delay").get()
    for each in what:
        with open_door():
            await connection.call(Command.PUBLISH, poisoned(each, topic, after_ms=after_ms))


async def unreadable(mq: ternmq.Client, topic: str, count: int) -> list[DelayRow]:
    rows = await mq.admin.delays.rows(topic=topic, unreadable=True)
    assert [row.state for row in rows] == ["unreadable"] * count
    return rows


async def test_records_that_nobody_can_read_hold_up_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, between and behind them good messages go out; also after a restart."""
    bad = 2 * len(POISON)
    async with node(data_dir=tmp_path, **SETTINGS) as url, ternmq.connect(url, app="t") as mq:
        await mq.send("t", b"first", delay=timedelta(seconds=0.4))
        for what in POISON:
            await poison(mq, "t", what, after_ms=(400, 400))
            await mq.send("t", what.encode(), delay=timedelta(seconds=0.4))
        await mq.send("t", b"last", delay=timedelta(seconds=0.6))

        good = {"first", *POISON, "last"}
        assert set(await arrived(mq, "t", len(good))) == good
        await settled(mq, "t", (len(good) + bad, bad, len(good), 0))
        rows = await unreadable(mq, "t", bad)
        assert sum(row.id == b"" for row in rows) == 2
        assert len(await mq.admin.delays.rows(topic="t")) == bad

    assert caplog.text.count("their record cannot be read") == len(POISON)
    assert "Traceback" not in caplog.text

    async with node(data_dir=tmp_path, **SETTINGS) as url, ternmq.connect(url, app="t") as mq:
        await mq.send("t", b"again", delay=timedelta(seconds=0.1))
        assert "again" in await arrived(mq, "t", len(good) + 1)
        await settled(mq, "t", (len(good) + 1 + bad, bad, len(good) + 1, 0))
        await unreadable(mq, "t", bad)


async def test_a_start_before_they_are_due_and_one_in_the_middle_of_hours(tmp_path: Path) -> None:
    """A batch over several hours cannot be cut if it cannot be read; it is kept whole."""
    async with node(data_dir=tmp_path, **SETTINGS) as url, ternmq.connect(url, app="t") as mq:
        await poison(mq, "t", *POISON, after_ms=(1_500, 8_000_000))
        await mq.send("t", b"good", delay=timedelta(seconds=2))
    bad = 2 * len(POISON)

    async with node(data_dir=tmp_path, **SETTINGS) as url, ternmq.connect(url, app="t") as mq:
        assert await arrived(mq, "t", 1) == ["good"]
        await settled(mq, "t", (1 + bad, bad, 1, 0))
        await unreadable(mq, "t", bad)


async def test_cancel_of_a_message_that_cannot_go_out(tmp_path: Path) -> None:
    """By its id, if that can be read; else the answer says what is wrong."""
    async with node(data_dir=tmp_path, **SETTINGS) as url, ternmq.connect(url, app="t") as mq:
        await poison(mq, "t", "key without offsets", after_ms=(100, 3_600_000))
        await mq.send("t", b"good", delay=timedelta(seconds=0.2))
        await arrived(mq, "t", 1)
        for row in await unreadable(mq, "t", 2):
            assert await mq.admin.delays.change("cancel", row) is CancelResult.CANCELLED
        await settled(mq, "t", (3, 0, 1, 2))
        await unreadable(mq, "t", 0)

        lost = poisoned(WITHOUT_IDS, "t", after_ms=(100, 100))
        with open_door():
            connection = await mq.cluster.server("main", "delay").get()
            await connection.call(Command.PUBLISH, lost)
        await unreadable(mq, "t", 2)
        its_id = BatchView(lost).own_id(0)
        with pytest.raises(ternmq.Corrupt, match="cannot be"):
            await mq.admin.delays.change("cancel", its_id)
