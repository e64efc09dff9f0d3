"""Fragments: rows of one do not wait for another; neither fresh nor late rows starve (D12)."""

import numpy as np

from ternmq.delay.timing.ready import Batch, ReadyRows


def batch(topic_id: int, *rows: int, hour: int = 0) -> Batch:
    return Batch(hour, topic_id, np.array(rows, np.uint32), due_ms=0)


def test_a_fragment_is_worked_on_by_one_at_a_time() -> None:
    ready = ReadyRows(4)
    ready.put(batch(1, 10, 11))
    ready.put(batch(5, 20))  # The same fragment.
    ready.put(batch(2, 30))

    first = ready.take(100)
    second = ready.take(100)

    assert first is not None
    assert second is not None
    assert (first[1].topic_id, second[1].topic_id) == (1, 2)
    assert ready.take(100) is None
    ready.done(first[0])
    third = ready.take(100)
    assert third is not None
    assert third[1].topic_id == 5
    assert ready.rows == 0


def test_rows_of_one_topic_and_hour_go_together_up_to_the_limit() -> None:
    ready = ReadyRows(1)
    for row in range(10):
        ready.put(batch(1, row))
    ready.put(batch(1, 99, hour=1))

    sizes = []
    while (taken := ready.take(4)) is not None:
        sizes.append(taken[1].rows.tolist())
        ready.done(taken[0])

    assert sizes == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [99]]


def test_late_rows_get_their_share_beside_fresh_ones() -> None:
    ready = ReadyRows(1)
    for row in range(100):
        ready.put(batch(1, row))
        ready.put(batch(1, 1_000 + row)._replace(late=True))

    order = []
    while (taken := ready.take(1)) is not None:
        order.append(taken[1].rows[0] >= 1_000)
        ready.done(taken[0])

    assert 20 <= sum(order[:100]) <= 30
    assert len(order) == 200
