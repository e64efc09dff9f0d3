"""Messages that a client brings back, against the real broker in this process (P5)."""

from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

import ternmq
from ternmq.core.errors import BadRequest, GroupNotFound, TopicNotFound
from ternmq.core.ids import id_to_text
from ternmq.pipeline.jobs.replay_writer import ReplayWriter
from ternmq.pipeline.sink import rows as sink_rows
from ternmq.testing import node
from ternmq.wire.messages.read import ReplayOpen


@pytest.fixture
async def mq() -> AsyncIterator[Any]:
    async with node() as url, ternmq.connect(url, app="test") as client:
        yield client


async def bring(mq: Any, first: int, end: int, *, into: str = "", name: str = "r") -> int:
    """Send one batch of a replay; returns how far it was before."""
    request = ReplayOpen(topic="orders", replay=name, source="main", into=into)
    writer = ReplayWriter(mq, mq.broker_groups()[0], request)
    position = await writer.open()
    numbers = range(first, end)
    rows = pa.RecordBatch.from_pydict(
        {"body": [b"%d" % n for n in numbers], "id": [id_to_text(n) for n in numbers]}
    )
    [made] = sink_rows.batches(rows, 0)
    await writer.send(
        made.pieces, made.count, made.body_size, last=end - 1, attributes=made.attributes
    )
    return position


async def bodies(mq: Any, topic: str) -> list[bytes]:
    end = (await mq.admin.seek(topic, ternmq.Start(at="latest"))).end
    return [message.body async for message in mq.read(topic, start="earliest", end=end)]


async def test_a_line_goes_on_where_it_ended_and_a_repeat_is_not_stored(mq: Any) -> None:
    assert await bring(mq, 0, 3) == 0
    assert await bring(mq, 10, 12) == 3
    assert await bring(mq, 10, 12) == 12
    assert await bring(mq, 0, 2, name="another") == 0

    assert await bodies(mq, "orders") == [b"0", b"1", b"2", b"10", b"11", b"0", b"1"]


async def test_rows_for_a_group_are_in_no_topic_that_others_see(mq: Any) -> None:
    await mq.send("orders", b"plain")
    await mq.admin.create_group("orders", "g", ternmq.Start(at="latest"))

    await bring(mq, 5, 9, into="g")

    assert await bodies(mq, "orders") == [b"plain"]
    totals = {line.lane: line.total for line in await mq.admin.ledger(group="g")}
    assert totals == {"topic": 0, "private": 4}


async def test_other_rows_under_the_same_numbers_are_refused(mq: Any) -> None:
    await bring(mq, 0, 6)

    with pytest.raises(BadRequest, match="partly sent before"):
        await bring(mq, 0, 4)


async def test_a_dry_run_checks_and_makes_nothing(mq: Any) -> None:
    group = (await mq.cluster.some_masters())[0]
    wanted = ReplayOpen(topic="orders", replay="r", source="main", dry_run=True)

    assert await ReplayWriter(mq, group, wanted).open() == 0
    assert await mq.admin.topics() == []
    grouped = ReplayOpen(topic="orders", replay="r", source="main", into="g", dry_run=True)
    with pytest.raises(TopicNotFound):
        await ReplayWriter(mq, group, grouped).open()
    await mq.send("orders", b"x")
    with pytest.raises(GroupNotFound):
        await ReplayWriter(mq, group, grouped).open()
