"""Picked rows are the rows of the batch, under the same numbers, and nothing else travels."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.batch import layout
from ternmq.batch.arrow import record_batch
from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Outgoing
from ternmq.batch.envelope import PICKED, Envelope, pack_envelope, read_envelopes
from ternmq.batch.layout import Encoding
from ternmq.batch.rows.pick import PickedView, pick
from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt
from ternmq.core.range_set import RangeSet
from tests.unit.batch.builders import a_batch, messages


def the_row(view: BatchView, row: int) -> tuple[object, ...]:
    return (
        view.message_id(row),
        view.id_bytes(row),
        view.body(row),
        view.bodies_of(row, row + 1),
        view.key(row),
        view.tag(row),
        view.properties(row),
        view.order_key(row),
        view.priority(row),
        view.expire_at_ms(row),
        view.born_at_ms(row),
        view.origin_app(row),
    )


def delivered(batch: bytearray, selection: list[tuple[int, int]]) -> Envelope:
    picked = pick(batch, selection)
    assert picked is not None
    head = pack_envelope(
        lease=1, lane=2, selection=selection, attempts=[], batch_size=len(picked), flags=PICKED
    )
    return read_envelopes(head + picked, 1)[0]


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(messages, min_size=1, max_size=60),
    chosen=st.sets(st.integers(0, 59), min_size=1),
)
def test_picked_rows_are_read_as_in_the_whole_batch(rows: list[Outgoing], chosen: set[int]) -> None:
    batch = a_batch(rows, encoding=Encoding.PLAIN)
    wanted = sorted({row % len(rows) for row in chosen})

    found = delivered(batch, list(RangeSet((row, row + 1) for row in wanted)))

    whole, view = BatchView(batch), found.batch
    view.check()
    assert found.span == wanted[-1] + 1
    assert (view.count, view.base_sequence) == (len(wanted), whole.base_sequence)
    assert [the_row(view, row) for row in wanted] == [the_row(whole, row) for row in wanted]
    assert view.sequences().tolist() == [whole.base_sequence + row for row in wanted]
    picked = pick(batch, found.selection)
    assert picked is not None
    layout.check_whole(picked)
    check_incoming(picked)


def test_a_range_of_picked_rows_is_a_range_of_their_columns() -> None:
    rows = [Outgoing(body=b"%d" % row, key=f"k{row}") for row in range(10)]

    view = delivered(a_batch(rows, encoding=Encoding.PLAIN), [(1, 2), (4, 7)]).batch

    assert view.bodies_of(4, 7) == [b"4", b"5", b"6"]
    shown = record_batch(view).slice(view.place(5), 2).to_pydict()
    assert (shown["sequence"], shown["key"]) == ([1_005, 1_006], ["k5", "k6"])


def test_compressed_bodies_are_not_picked() -> None:
    batch = a_batch([Outgoing(body=b"x" * 30_000) for _ in range(9)])

    assert pick(batch, [(1, 2), (8, 9)]) is None


@pytest.mark.parametrize("selection", [[(1, 2)], [(4, 5), (1, 2)], [(1, 1), (2, 4)], [(1, 70_000)]])
def test_rows_that_do_not_fit_the_batch_are_refused(selection: list[tuple[int, int]]) -> None:
    batch = a_batch([Outgoing(body=b"x") for _ in range(9)], encoding=Encoding.PLAIN)
    picked = pick(batch, [(1, 2), (4, 5)])
    assert picked is not None

    with pytest.raises(Corrupt):
        PickedView(picked, selection)
