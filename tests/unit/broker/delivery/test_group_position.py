"""Where a group stands, as readers without a lease are told (R19)."""

from ternmq.broker.delivery.group_position import RANGES_MAX, position
from ternmq.broker.groups.lane import Lane


def lane_of(start: int, *done: tuple[int, int]) -> Lane:
    lane = Lane(start)
    lane.grow(10 * RANGES_MAX)
    for first, end in done:
        lane.done.add(first, end)
    return lane


def test_it_is_the_first_row_that_is_not_settled_and_what_is_settled_behind_it() -> None:
    assert position(lane_of(0, (0, 5), (7, 9)), 0, 20) == (5, [(7, 9)])
    assert position(lane_of(3), 0, 20) == (3, []), "it began there"
    assert position(lane_of(0, (0, 5)), 10, 20) == (10, []), "what was before is removed"
    assert position(lane_of(0, (0, 20)), 0, 20) == (20, []), "nothing is left"
    assert position(lane_of(0, (5, 30)), 0, 20) == (0, [(5, 20)]), "not beyond the end"


def test_an_answer_has_a_bound() -> None:
    many = [(2 * at, 2 * at + 1) for at in range(1, RANGES_MAX + 10)]
    at, settled = position(lane_of(0, *many), 0, 10 * RANGES_MAX)

    assert at == 0 and settled == many[:RANGES_MAX]
