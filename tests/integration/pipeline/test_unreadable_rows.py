"""Batches that older releases stored and nobody reads whole, through a broker (P1, P3, D14)."""

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

import ternmq
from ternmq.cli.terminal.output import message_fields
from ternmq.client.reading.range_reader import RangeReader
from ternmq.pipeline.source.columns import MESSAGES, full_schema, needed
from ternmq.pipeline.source.rows import RowMaker
from ternmq.testing import node
from ternmq.wire.numbers import Command
from tests.integration.poisoned_batches import POISON, open_door, poisoned

WHOLE = to_arrow_schema(full_schema("messages", properties=True), timezone="UTC")


async def test_every_row_of_a_poisoned_topic_is_read_by_source_and_command_line() -> None:
    """With all columns and with each alone: none is missing, the rest goes on."""
    count = 2 + 2 * len(POISON)
    with open_door():
        async with node() as url, ternmq.connect(url, app="shop") as mq:
            await mq.send("orders", b"good")
            broker = mq.cluster.broker("main")
            for what in POISON:
                await (await broker.get()).call(Command.PUBLISH, bytes(poisoned(what, "orders")))
            await mq.send("orders", b"good")
            for names in (list(MESSAGES), *([name] for name in MESSAGES)):
                reader = RangeReader(broker, "orders", columns=needed(names))
                pages = [page.envelopes async for page in reader.walk(0, count)]
                schema = pa.schema([WHOLE.field(name) for name in names])
                maker = RowMaker(schema, topic="orders", broker_group="main")
                rows = [row for one in maker.record_batches(iter(pages)) for row in one.to_pylist()]
                assert len(rows) == count, names
            shown = [message_fields(message) async for message in mq.read("orders")]
    assert len(shown) == count
    assert ["unreadable" in fields for fields in shown[:: count - 1]] == [False, False]
    assert any("unreadable" in fields for fields in shown)
