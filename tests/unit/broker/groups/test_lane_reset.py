"""What a reset makes of a lane's line; see also the model in `test_lane`."""

from tests.unit.broker.groups.test_lane import a_lane, hand_out


def test_a_forward_reset_skips_what_was_not_handled() -> None:
    lane = a_lane(100)
    hand_out(lane, 1, 20)
    lane.ack(1, 0, 10)

    lane.reset(50)

    line = lane.ledger()
    assert (line.acked, line.skipped, line.ready, line.in_flight) == (10, 40, 50, 0)
    assert line.generation == 1


def test_a_backward_reset_is_a_new_generation() -> None:
    lane = a_lane(100)
    hand_out(lane, 1, 100)
    lane.ack(1, 0, 100)

    lane.reset(30)

    line = lane.ledger()
    assert (line.start, line.total, line.ready, line.acked) == (30, 70, 70, 0)
    assert line.generation == 2
    assert lane.ack(1, 30, 40).settled == 0  # An old consumer cannot ack what is to come again.


def test_an_ack_of_a_delivery_from_before_the_reset_does_not_count() -> None:
    """Also not once the row was handed out again and is back."""
    lane = a_lane(100)
    hand_out(lane, 1, 100)
    lane.ack(1, 0, 60)

    lane.reset(30)
    hand_out(lane, 2, 10)
    lane.give_back(2, 30, 40)

    assert lane.ack(1, 30, 40).late == 10
    assert lane.ack(2, 30, 40).settled == 10, "a late ack of this generation counts"


def test_rows_skipped_by_a_reset_past_settled_ones_are_named_in_the_new_line() -> None:
    lane = a_lane(100)
    hand_out(lane, 1, 70)
    lane.ack(1, 0, 10)
    lane.ack(1, 60, 70)

    lane.reset(50)

    line = lane.ledger()
    assert (line.generation, line.total) == (2, 90)
    assert (line.skipped, line.ready, line.acked, line.in_flight) == (40, 50, 0, 0)
    assert lane.in_flight() == 0
    assert lane.next == 50

    lane.reset(50)
    assert lane.ledger() == line
