"""A task's rows on a real broker in process: staged, committed, and not twice (P2)."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import ternmq
from ternmq.core.errors import TernError
from ternmq.core.ids import id_to_text
from ternmq.pipeline.cluster import cluster
from ternmq.pipeline.sink import commit, stage
from ternmq.pipeline.sink import rows as sink_rows
from ternmq.pipeline.sink.stage import Stage, TaskDone
from ternmq.testing import node


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    async with node(data_dir=tmp_path) as address:
        yield address


def task(url: str, rows: pa.RecordBatch, *, pieces: int = 1, partition: int = 0) -> TaskDone:
    """What a task does, in batches of a few rows."""
    stage = Stage(cluster(url), TaskDone("query:1", ["main"], partition, "main"))
    step = -(-rows.num_rows // pieces)
    for first in range(0, rows.num_rows, step):
        for columns in sink_rows.batches(rows.slice(first, step), 1_000):
            stage.add("orders", columns)
    return stage.finish()


async def bodies(url: str) -> list[bytes]:
    async with ternmq.connect(url, app="test") as mq:
        if "orders" not in [known.name for known in await mq.admin.topics()]:
            return []
        return [message.body async for message in mq.read("orders")]


def numbered(first: int, end: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": [b"%d" % number for number in range(first, end)]})


async def test_a_long_task_takes_several_attempts_and_keeps_its_order(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "BATCHES_MAX", 7)
    second = await asyncio.to_thread(task, url, numbered(50, 60), partition=1)
    first = await asyncio.to_thread(task, url, numbered(0, 50), pieces=50)
    assert (len(first.attempts), first.rows) == (8, 50)
    assert await bodies(url) == []

    tasks = commit.tasks_of([second, None, first])
    assert await asyncio.to_thread(commit.commit, cluster(url), tasks) == 60

    assert await bodies(url) == [b"%d" % number for number in range(60)]
    again = await asyncio.to_thread(task, url, numbered(0, 60), pieces=10)
    assert (again.committed, again.attempts, again.rows) == (True, [], 0)
    assert await asyncio.to_thread(commit.commit, cluster(url), [again]) == 0
    assert len(await bodies(url)) == 60


async def test_ids_and_times_are_kept(url: str) -> None:
    at = datetime(2026, 11, 15, 12, 30, tzinfo=UTC)
    ids = [id_to_text(7), id_to_text(2**127 + 5)]
    rows = pa.RecordBatch.from_pydict(
        {"body": [b"a", b"b"], "id": ids, "born_at": pa.array([at, at], pa.timestamp("us", "UTC"))}
    )
    done = await asyncio.to_thread(task, url, rows)
    await asyncio.to_thread(commit.commit, cluster(url), [done])

    async with ternmq.connect(url, app="test") as mq:
        messages = [message async for message in mq.read("orders")]
        assert [message.id for message in messages] == ids
        assert messages[0].born_at == at
        [found] = await mq.find("orders", id=ids[1])
        assert found.message.body == b"b"


async def test_an_error_rolls_back_what_its_task_had_staged(url: str) -> None:
    def failing() -> None:
        stage = Stage(cluster(url), TaskDone("query:1", ["main"], 0, "main"))
        for columns in sink_rows.batches(numbered(0, 10), 1_000):
            stage.add("orders", columns)
            stage.add("not a topic", columns)
        try:
            stage.finish()
        except TernError:
            stage.give_up()
            raise

    with pytest.raises(TernError, match="not a topic"):
        await asyncio.to_thread(failing)
    async with ternmq.connect(url, app="test") as mq:
        assert (await mq.admin.halves()).total == 0
