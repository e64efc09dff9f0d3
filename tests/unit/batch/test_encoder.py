"""What goes into a batch comes out of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.batch.arrow import record_batch
from ternmq.batch.encoder import Outgoing, encode_bodies, split_rows
from ternmq.batch.layout import BATCH_SIZE_MAX, ROWS_MAX, Column, ColumnPart, Encoding
from ternmq.batch.view import BatchView
from ternmq.core.errors import TooLarge
from ternmq.core.ids import id_to_text
from tests.unit.batch.builders import ORIGIN, a_batch, encodings, messages, rows_of


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(messages, min_size=1, max_size=100), encoding=encodings)
def test_every_field_survives(rows: list[Outgoing], encoding: Encoding) -> None:
    """J11: what is stored per message."""
    view = BatchView(a_batch(rows, encoding=encoding))

    view.check()
    assert view.count == len(rows)
    assert (view.topic, view.app) == ("order.paid", "shop")
    for got, sent in zip(rows_of(view), rows, strict=True):
        assert got[1:] == (
            sent.body,
            sent.key,
            sent.tag,
            dict(sent.properties or {}),
            sent.order_key,
            sent.priority,
            sent.expire_at_ms,
            sent.born_at_ms,
        )


def test_a_missing_key_and_an_empty_key_differ() -> None:
    view = BatchView(a_batch([Outgoing(body=b"a", key=None), Outgoing(body=b"b", key="")]))

    assert (view.key(0), view.key(1)) == (None, "")


def test_an_empty_body_is_a_body() -> None:
    assert BatchView(a_batch([Outgoing(body=b"")])).bodies() == [b""]


def test_ids_follow_the_producers_sequence_and_cost_no_bytes() -> None:
    view = BatchView(a_batch([Outgoing(body=b"a"), Outgoing(body=b"b")]))

    expected = [id_to_text(ORIGIN.producer.message_id(n)) for n in (7, 8)]
    assert [view.message_id(0), view.message_id(1)] == expected
    assert view.buffer(Column.EXPLICIT_ID, ColumnPart.DATA) is None


def test_bodies_over_100_bytes_are_compressed_when_it_helps() -> None:
    """J8: compression by default, for bodies over 100 bytes."""
    long = a_batch([Outgoing(body=b"tern " * 100)] * 10)
    short = a_batch([Outgoing(body=b"tern " * 10)] * 10)

    assert BatchView(long).parts()[Column.BODY, ColumnPart.DATA][2] == Encoding.ZSTD
    assert len(long) < 1_000
    assert BatchView(short).parts()[Column.BODY, ColumnPart.DATA][2] == Encoding.PLAIN


def test_a_batch_over_the_limit_is_refused_with_advice() -> None:
    body = np.random.default_rng(1).bytes(BATCH_SIZE_MAX)

    with pytest.raises(TooLarge, match="send a link"):
        encode_bodies([body], origin=ORIGIN, first_sequence=0, born_at_ms=0)


def test_too_many_rows_are_refused() -> None:
    with pytest.raises(TooLarge, match="65535"):
        encode_bodies([b""] * (ROWS_MAX + 1), origin=ORIGIN, first_sequence=0, born_at_ms=0)


@given(
    sizes=st.lists(st.integers(0, 100), min_size=1, max_size=200),
    rows_max=st.integers(1, 50),
    size_max=st.integers(1, 500),
)
def test_splitting_keeps_every_row_in_order_within_the_limits(
    sizes: list[int], rows_max: int, size_max: int
) -> None:
    """R8: larger lists are split by themselves."""
    ranges = split_rows(sizes, rows_max=rows_max, size_max=size_max)

    assert [row for first, end in ranges for row in range(first, end)] == list(range(len(sizes)))
    for first, end in ranges:
        assert end - first <= rows_max
        assert end - first == 1 or sum(sizes[first:end]) <= size_max


def test_pyarrow_reads_the_columns_in_place() -> None:
    """Design 0.2: the log is Arrow-shaped; no column but sequence and time is copied."""
    batch = a_batch(
        [Outgoing(body=b"one", key="k", tag="a"), Outgoing(body=b"two", key=None, tag=None)]
    )
    start = np.frombuffer(batch, dtype=np.uint8).ctypes.data

    table = record_batch(BatchView(batch))

    assert table["body"].to_pylist() == [b"one", b"two"]
    assert table["key"].to_pylist() == ["k", None]
    assert table["tag"].to_pylist() == ["a", None]
    assert table["sequence"].to_pylist() == [1_000, 1_001]
    for name in ("body", "key"):
        for buffer in table[name].buffers():
            if buffer is not None:
                assert start <= buffer.address < start + len(batch)
