"""A cut is a batch again and holds the rows that were asked for."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.batch import layout
from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Outgoing
from ternmq.batch.layout import Column, ColumnPart, Encoding
from ternmq.batch.rows.cut import cut, project, thin
from ternmq.batch.view import BatchView
from tests.unit.batch.builders import a_batch, encodings, messages, rows_of


@settings(max_examples=150, deadline=None)
@given(data=st.data(), rows=st.lists(messages, min_size=1, max_size=60), encoding=encodings)
def test_the_rows_of_a_cut_are_the_rows_of_the_batch(
    data: st.DataObject, rows: list[Outgoing], encoding: Encoding
) -> None:
    batch = a_batch(rows, encoding=encoding)
    first = data.draw(st.integers(0, len(rows) - 1))
    end = data.draw(st.integers(first + 1, len(rows)))

    smaller = cut(batch, first, end)

    view = BatchView(smaller.batch)
    layout.check_whole(smaller.batch)
    check_incoming(smaller.batch)
    assert smaller.first_row <= first
    assert smaller.first_row + view.count >= end
    assert view.base_sequence == 1_000 + smaller.first_row
    expected = rows_of(BatchView(batch))[smaller.first_row : smaller.first_row + view.count]
    assert rows_of(view) == expected


def test_plain_bodies_are_cut_exactly() -> None:
    batch = a_batch([Outgoing(body=b"%d" % row) for row in range(100)], encoding=Encoding.PLAIN)

    smaller = cut(batch, 13, 17)

    assert smaller.first_row == 13
    assert BatchView(smaller.batch).bodies() == [b"13", b"14", b"15", b"16"]


def test_compressed_bodies_are_cut_by_chunk_and_never_decompressed() -> None:
    rows = [Outgoing(body=b"x" * 30_000) for _ in range(9)]
    batch = a_batch(rows)

    smaller = cut(batch, 4, 5)

    assert (smaller.first_row, BatchView(smaller.batch).count) == (4, 2)
    assert len(smaller.batch) < len(batch)


def test_a_column_of_a_later_version_survives_a_cut() -> None:
    batch = a_batch([Outgoing(body=b"a", key="x"), Outgoing(body=b"b", key="y")])
    at = bytes(batch).index(layout.DIRECTORY.pack(2, 1, 2, 0, 0, 0)[:5])
    for entry in range(at, at + 2 * layout.DIRECTORY_ENTRY_SIZE, layout.DIRECTORY_ENTRY_SIZE):
        batch[entry : entry + 2] = (99).to_bytes(2, "little")
    view = BatchView(cut(batch, 1, 2).batch)

    data = view.buffer(99, layout.ColumnPart.DATA)

    assert data is not None
    assert bytes(data) == b"y"
    assert view.key(0) is None


def test_a_projection_keeps_the_chosen_columns_and_the_sizes_of_the_bodies() -> None:
    """P1: what a reader did not ask for stays at the broker."""
    rows = [Outgoing(body=b"x" * n, key=f"k{n}", tag="t", properties={"n": n}) for n in (1, 2, 3)]
    whole = a_batch(rows)
    smaller = BatchView(project(whole, {Column.KEY}))
    smaller.check()
    assert [smaller.key(row) for row in range(3)] == ["k1", "k2", "k3"]
    assert {column for column, _ in smaller.parts()} == {Column.KEY, Column.BODY}
    assert smaller.buffer(Column.BODY, ColumnPart.DATA) is None
    offsets = smaller.buffer(Column.BODY, ColumnPart.OFFSETS)
    assert offsets is not None and offsets.cast("i").tolist() == [0, 1, 3, 6]
    assert smaller.message_id(2) == BatchView(whole).message_id(2)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(messages, min_size=1, max_size=60),
    encoding=encodings,
    chosen=st.sets(st.integers(0, 59), min_size=1),
)
def test_a_thin_batch_has_all_of_the_wanted_rows_and_no_other_bodies(
    rows: list[Outgoing], encoding: Encoding, chosen: set[int]
) -> None:
    batch = a_batch(rows, encoding=encoding)
    wanted = sorted({row % len(rows) for row in chosen})

    thinner = thin(batch, [(row, row + 1) for row in wanted])

    view, before = BatchView(thinner), BatchView(batch)
    layout.check_whole(thinner)
    check_incoming(thinner)
    assert (view.count, view.base_sequence) == (before.count, before.base_sequence)
    expected = rows_of(before)
    compressed = before.buffer(Column.BODY, ColumnPart.CHUNKS) is not None
    for row, found in enumerate(rows_of(view)):
        if row in wanted:
            assert found == expected[row]
        elif not compressed:  # Else a chunk's neighbours come along.
            assert found == (expected[row][0], b"", *expected[row][2:])


def test_a_thin_batch_has_only_the_chunks_that_are_wanted() -> None:
    """Compressed bodies are never decompressed by a broker: a chunk stays whole or goes."""
    batch = a_batch([Outgoing(body=b"%d" % row * 30_000) for row in range(9)])

    view = BatchView(thin(batch, [(1, 2), (8, 9)]))

    assert [body[:1] for body in view.bodies()] == [b"0", b"1", b"", b"", b"", b"", b"", b"", b"8"]
    assert len(view.buffer(Column.BODY, ColumnPart.CHUNKS) or b"") == 2 * 16
