"""The book says what became of each row, and the same after its records are read again (Q8)."""

import numpy as np
import pytest

from ternmq.delay.formats.decision import Decision, DecisionKind
from ternmq.delay.hours.decision_book import (
    BUSY,
    CANCELLED,
    DISPATCHED,
    INTENDED,
    PENDING,
    DecisionBook,
)
from ternmq.delay.hours.hour import NEVER


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint32)


def intent(offset: int, *numbers: int) -> Decision:
    return Decision(
        kind=DecisionKind.INTENT, at_ms=1, topic_id=7, rows=rows(*numbers), offset=offset
    )


def a_book(count: int = 10) -> DecisionBook:
    book = DecisionBook()
    book.grow(count)
    return book


def test_a_row_goes_from_pending_to_dispatched() -> None:
    book = a_book()
    assert book.hold(rows(1, 2), NEVER).tolist() == [1, 2]
    assert book.state(1) == BUSY
    assert book.hold(rows(1, 2, 3), NEVER).tolist() == [3]

    book.apply(intent(88, 1, 2))
    assert book.state(1) == INTENDED
    assert book.settled == 0
    book.apply(Decision(kind=DecisionKind.DONE, at_ms=1, value=88))

    assert book.state(1) == book.state(2) == DISPATCHED
    assert book.dispatched == {7: 2}
    assert not book.intents


def test_a_refused_intent_gives_its_rows_back() -> None:
    book = a_book()
    book.apply(intent(0, 4))
    book.apply(Decision(kind=DecisionKind.RELEASED, at_ms=1, value=0))

    assert book.state(4) == PENDING
    assert book.settled == 0


def test_cancelling_twice_counts_once() -> None:
    book = a_book()
    cancel = Decision(kind=DecisionKind.CANCELLED, at_ms=1, topic_id=7, rows=rows(3))
    book.apply(cancel)
    book.apply(cancel)

    assert book.state(3) == CANCELLED
    assert book.cancelled == {7: 1}


def test_a_moved_row_listens_to_its_new_time_only() -> None:
    book = a_book()
    book.apply(Decision(kind=DecisionKind.MOVED, at_ms=1, topic_id=7, rows=rows(5), value=900))

    assert book.pending(rows(4, 5), np.array([100, 100])).tolist() == [True, False]
    assert book.pending(rows(5), np.array([900])).tolist() == [True]
    assert book.due_of(5, 100) == 900
    assert book.hold(rows(5), 899).tolist() == []
    assert book.hold(rows(5), 900).tolist() == [5]
    book.apply(intent(0, 5))
    book.apply(Decision(kind=DecisionKind.DONE, at_ms=1, value=0))
    assert book.moves == {}


def test_a_move_that_was_given_back_is_still_moved() -> None:
    book = a_book()
    book.apply(Decision(kind=DecisionKind.MOVED, at_ms=1, topic_id=7, rows=rows(5), value=900))
    book.hold(rows(5), NEVER)
    book.free(rows(5))

    assert book.state(5) == PENDING
    assert book.pending(rows(5), np.array([100])).tolist() == [False]


@pytest.mark.parametrize("count", [1, 64, 65, 1_000])
def test_the_book_grows_with_its_hour(count: int) -> None:
    book = a_book(3)
    book.apply(Decision(kind=DecisionKind.CANCELLED, at_ms=1, topic_id=7, rows=rows(2)))
    book.grow(3 + count)

    assert book.rows == 3 + count
    assert book.state(2) == CANCELLED
    assert (book.states[3:] == PENDING).all()
