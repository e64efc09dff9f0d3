"""Rows for Spark are what the batch says, whatever columns it has."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from ternmq.batch.encoder import Outgoing
from ternmq.batch.envelope import Envelope
from ternmq.batch.layout import Encoding
from ternmq.batch.properties import value_to_text
from ternmq.batch.rows.cut import project
from ternmq.batch.view import BatchView
from ternmq.pipeline.source.columns import full_schema, needed
from ternmq.pipeline.source.rows import RowMaker
from tests.unit.batch.builders import a_batch, encodings, messages

SCHEMA = full_schema("messages", properties=True)


def rows(view: BatchView, names: list[str] | None = None) -> list[dict[str, Any]]:
    schema = to_arrow_schema(SCHEMA, timezone="UTC")
    if names is not None:
        schema = pa.schema([schema.field(name) for name in names])
    maker = RowMaker(schema, topic="orders", broker_group="main")
    envelope = Envelope(0, 0, view, [(0, view.count)], [], True)

    def pieces() -> Iterator[list[Envelope]]:
        yield [envelope]

    [batch] = maker.record_batches(pieces())
    batch.validate(full=True)
    assert batch.schema.equals(schema)
    for at, field in enumerate(schema):
        if pa.types.is_timestamp(field.type):  # Python has no years after 9999.
            batch = batch.set_column(at, field.name, batch.column(at).cast(pa.int64()))
    return list(batch.to_pylist())


@settings(max_examples=80, deadline=None)
@given(sent=st.lists(messages, min_size=1, max_size=40), encoding=encodings)
def test_every_column_is_what_was_sent(sent: list[Outgoing], encoding: Encoding) -> None:
    """P1."""
    view = BatchView(a_batch(sent, encoding=encoding))

    for number, row in enumerate(rows(view)):
        assert row["id"] == view.message_id(number)
        assert row["sequence"] == view.base_sequence + number
        assert row["body"] == view.body(number)
        assert row["size"] == len(view.body(number))
        assert row["key"] == view.key(number)
        assert row["tag"] == view.tag(number)
        assert row["order_key"] == view.order_key(number)
        expected = {
            name: value_to_text(value)[1].decode()
            for name, value in view.properties(number).items()
        }
        assert dict(row["properties"]) == expected
        assert row["born_at"] == view.born_at_ms(number) * 1000
        assert row["stored_at"] == view.stored_at_ms * 1000
        assert row["app"] == view.app


@settings(max_examples=40, deadline=None)
@given(
    sent=st.lists(messages, min_size=1, max_size=20),
    names=st.lists(st.sampled_from(SCHEMA.names), min_size=1, unique=True),
)
def test_a_projected_batch_has_all_that_its_columns_need(
    sent: list[Outgoing], names: list[str]
) -> None:
    whole = a_batch(sent)
    smaller = BatchView(project(whole, needed(names)))

    expected = [{name: row[name] for name in names} for row in rows(BatchView(whole))]
    assert rows(smaller, names) == expected


@given(
    ids=st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=40), odd=st.booleans()
)
def test_ids_that_rows_bring_are_shown_as_everywhere(ids: list[bytes], odd: bool) -> None:
    """P1: of 16 bytes all at once, others one by one."""
    sent = [Outgoing(body=b"x", born_at_ms=1, explicit_id=one) for one in ids]
    if odd:
        sent.append(Outgoing(body=b"x", born_at_ms=1, explicit_id=b"short"))
        sent.append(Outgoing(body=b"x", born_at_ms=1))
    view = BatchView(a_batch(sent))

    found = [row["id"] for row in rows(view, ["id"])]

    assert found == [view.message_id(number) for number in range(view.count)]
