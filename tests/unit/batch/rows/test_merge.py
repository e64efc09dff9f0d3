"""Rows taken from several batches are the same messages in one batch (Q7)."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.batch import layout
from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Origin, Outgoing
from ternmq.batch.layout import Attribute, Column, ColumnPart, Encoding
from ternmq.batch.rows.merge import ChosenRows, merge, take
from ternmq.batch.view import BatchView
from ternmq.core.ids import ProducerId
from tests.unit.batch.builders import a_batch, encodings, messages, rows_of

DISPATCHER = Origin(topic="t", app="%delay", producer=ProducerId(7, 8))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), rows=st.lists(messages, min_size=1, max_size=40), encoding=encodings)
def test_taken_rows_are_the_rows_of_the_batch(
    data: st.DataObject, rows: list[Outgoing], encoding: Encoding
) -> None:
    view = BatchView(a_batch(rows, encoding=encoding))
    wanted = data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1))
    chosen = np.array(sorted(wanted), dtype=np.int64)

    batch = take(view, chosen)

    check_incoming(batch)
    assert rows_of(BatchView(batch)) == [rows_of(view)[row] for row in chosen]


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    batches=st.lists(st.lists(messages, min_size=1, max_size=20), min_size=1, max_size=4),
    encoding=encodings,
)
def test_merged_rows_keep_all_they_say(
    data: st.DataObject, batches: list[list[Outgoing]], encoding: Encoding
) -> None:
    views = [BatchView(a_batch(rows, encoding=encoding)) for rows in batches]
    sources = []
    expected = []
    for view in views:
        rows = data.draw(st.permutations(range(view.count)))
        rows = rows[: data.draw(st.integers(1, view.count))]
        sources.append(ChosenRows(view, np.array(rows, dtype=np.int64)))
        expected += [rows_of(view)[row] for row in rows]

    batch = merge(sources, origin=DISPATCHER, first_sequence=50)

    check_incoming(batch)
    assert rows_of(BatchView(batch)) == expected
    header = layout.read_producer_header(batch)
    assert (header.producer_start, header.producer_random, header.first_sequence) == (7, 8, 50)
    assert header.attributes & Attribute.MERGED


def test_a_merged_row_says_where_it_came_from_and_not_when_it_was_due() -> None:
    source = a_batch([Outgoing(body=b"a", due_at_ms=5), Outgoing(body=b"b", due_at_ms=6)])
    stamp = layout.Stamp(
        offset=0,
        topic_id=1,
        base_sequence=0,
        epoch=1,
        stored_at_ms=1,
        received_at_ms=1,
        durable_to=0,
        client_ip=bytes(range(16)),
        client_port=258,
    )
    layout.stamp(source, stamp)
    view = BatchView(source)

    merged = BatchView(
        merge([ChosenRows(view, np.array([1]))], origin=DISPATCHER, first_sequence=1)
    )

    assert merged.buffer(Column.DUE, ColumnPart.VALUES) is None
    assert bytes(merged.buffer(Column.ORIGIN_APP, ColumnPart.DATA) or b"") == view.app.encode()
    address = bytes(merged.buffer(Column.ORIGIN_ADDRESS, ColumnPart.DATA) or b"")
    assert address == bytes(range(16)) + b"\x01\x02"
    assert merged.message_id(0) == view.message_id(1)
    assert merged.app == "%delay"
