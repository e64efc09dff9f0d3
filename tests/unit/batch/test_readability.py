"""What older releases stored: the verdict, and readers that cope with it instead of failing."""

import itertools

import numpy as np
import pytest

from ternmq.batch.check import check_incoming, describe_stored
from ternmq.batch.encoder import Section
from ternmq.batch.layout import Attribute, Column, ColumnPart, Type
from ternmq.batch.readability import order_keys_of, why_unreadable
from ternmq.batch.rows.expiry import expired_rows
from ternmq.batch.view import BatchView
from ternmq.broker.log.internal_producer import copy_of
from ternmq.core.errors import Corrupt, TernError
from ternmq.delay.hours.hour_index import entry_of
from ternmq.delay.store.split_by_hour import split
from ternmq.storage.index.rows import PlaceColumns
from tests.unit.batch.test_column_rules import DUE_MS, ROWS, a_batch_with, columns, stored, variants

OFFSETS = np.arange(ROWS + 1, dtype="<i4").tobytes()


@pytest.mark.parametrize("column", columns())
def test_whatever_could_be_stored_is_coped_with(column: int) -> None:
    """Every variant that an older door let through, by every reader that must go on."""
    bad = 0
    for pieces, attributes in itertools.product(variants(column), (0, int(Attribute.EXPIRES))):
        batch = a_batch_with(pieces, attributes)
        try:
            describe_stored(batch)
        except (TernError, ValueError):
            continue  # Sizes that no release took.
        try:
            check_incoming(batch)
            refused = False
        except TernError:
            refused = True
        view = BatchView(stored(batch))
        assert bool(why_unreadable(view)) == refused, pieces
        bad += refused
        assert len(order_keys_of(view)) == ROWS
        expired_rows(view, DUE_MS)
        places = PlaceColumns()
        places.add(view, 3, view.base_sequence)
        places.rows()
        assert sum(piece.row_count for piece in split(bytes(batch), 3_600_000)) == ROWS
        assert entry_of(batch).row_count == ROWS
        for row in range(ROWS):
            assert copy_of(view, row, {"%reason": "x"}).body == b"abc"[row : row + 1]
    assert bad or column in (Column.DUE, Column.TRANSACTION)


def test_a_view_says_corrupt_each_time_it_is_asked() -> None:
    """The bytes of a column that is no text must never be taken for text by the next reader."""
    pieces = [
        Section(Column.KEY, ColumnPart.OFFSETS, Type.UTF8, OFFSETS),
        Section(Column.KEY, ColumnPart.DATA, Type.UTF8, b"a\xffc"),
    ]
    view = BatchView(stored(a_batch_with(pieces)))
    for _ in range(3):
        with pytest.raises(Corrupt, match="UTF-8"):
            view.key(0)


def test_order_keys_that_are_no_text_still_order() -> None:
    pieces = [
        Section(Column.ORDER_KEY, ColumnPart.OFFSETS, Type.UTF8, OFFSETS),
        Section(Column.ORDER_KEY, ColumnPart.DATA, Type.UTF8, b"a\xff\xff"),
    ]
    view = BatchView(stored(a_batch_with(pieces)))
    assert order_keys_of(view) == ["a", "\\xff", "\\xff"]
    assert order_keys_of(view) == ["a", "\\xff", "\\xff"]


def test_a_copy_names_what_it_leaves_out() -> None:
    pieces = [Section(Column.EXPLICIT_ID, ColumnPart.DATA, Type.BINARY, b"abc")]
    view = BatchView(stored(a_batch_with(pieces, born_ms=-5)))

    copy = copy_of(view, 1, {"%reason": "x"})

    assert copy.explicit_id == view.own_id(1)
    assert copy.born_at_ms == 0
    assert copy.properties is not None
    assert "column" in str(copy.properties["%damaged"])
