"""Envelopes around some rows of a batch: which rows travel, and for whom all of them."""

from ternmq.batch.encoder import Outgoing
from ternmq.batch.envelope import Envelope, read_envelopes
from ternmq.batch.layout import Encoding
from ternmq.batch.rows.pick import PickedView
from ternmq.broker.delivery.envelopes import PICK_ROWS_MAX, Envelopes
from ternmq.broker.delivery.handout import Slice
from ternmq.storage.consume.entry import ConsumeEntry
from tests.unit.batch.builders import a_batch

ROWS = 1_000


def wrapped(
    selection: list[tuple[int, int]], *, picks: bool = True, encoding: Encoding = Encoding.PLAIN
) -> Envelope:
    batch = a_batch([Outgoing(body=b"x" * 200) for _ in range(ROWS)], encoding=encoding)
    entry = ConsumeEntry(1_000, 0, len(batch), ROWS, 0, 0, 0, 0)
    attempts = [2] * sum(end - first for first, end in selection)
    wrapping = Envelopes(1, 3, picks=picks)
    return read_envelopes(b"".join(wrapping.wrap(Slice(entry, selection, attempts), batch)), 1)[0]


def test_who_cannot_read_picked_rows_gets_all_rows_without_their_bodies() -> None:
    for found in (
        wrapped([(5, 6), (900, 901)], picks=False),
        wrapped([(row, row + 1) for row in range(0, ROWS, ROWS // (PICK_ROWS_MAX + 5))]),
    ):
        assert not isinstance(found.batch, PickedView)
        assert found.batch.count == ROWS
        assert found.batch.body(found.selection[0][0]) == b"x" * 200
    found = wrapped([(5, 6), (900, 901)], encoding=Encoding.ZSTD)
    assert not isinstance(found.batch, PickedView)
    assert [found.batch.body(row) for row, _ in found.selection] == [b"x" * 200] * 2


def test_neighbours_are_cut_and_most_of_a_batch_goes_as_it_is() -> None:
    assert wrapped([(5, 9)]).batch.count == 4
    assert wrapped([(5, 9), (10, 12)]).batch.count == 7
    assert wrapped([(0, 500), (501, ROWS)]).whole
