"""How rows were settled where not by an ack: noted, bounded, honest about what is forgotten."""

from ternmq.broker.groups import outcomes
from ternmq.broker.groups.lane_event import LaneEvent
from ternmq.broker.groups.outcomes import KEPT_MAX, Outcomes
from ternmq.storage.pull.record import PullKind


def settled(kind: PullKind, *ranges: tuple[int, int]) -> LaneEvent:
    return LaneEvent(kind, tuple((first, end, 0) for first, end in ranges))


def test_what_is_not_noted_is_acked() -> None:
    known = Outcomes()
    known.note(settled(PullKind.ACKED, (0, 100)))

    assert known.within(0, 100) == []


def test_parts_are_named_with_how_they_were_settled() -> None:
    known = Outcomes()
    known.note(settled(PullKind.FILTERED, (0, 3), (6, 9)))
    known.note(settled(PullKind.DEAD, (4, 5)))
    known.note(settled(PullKind.EXPIRED, (20, 30)))

    assert known.within(0, 10) == [(0, 3, "filtered"), (4, 5, "dead"), (6, 9, "filtered")]
    assert known.within(2, 7) == [(2, 3, "filtered"), (4, 5, "dead"), (6, 7, "filtered")]
    assert known.within(25, 26) == [(25, 26, "expired")]
    assert known.within(10, 20) == []


def test_below_what_was_forgotten_nobody_can_tell() -> None:
    known = Outcomes()
    for sequence in range(0, 2 * outcomes.KEPT_MAX + 20, 2):
        known.note(settled(PullKind.FILTERED, (sequence, sequence + 1)))

    assert known.floor == 19
    assert known.within(1, 2) == [(1, 2, "unknown")]
    assert known.within(18, 24) == [
        (18, 19, "unknown"),
        (20, 21, "filtered"),
        (22, 23, "filtered"),
    ]


def test_a_reset_forward_leaves_what_is_known_and_says_what_it_skipped() -> None:
    known = Outcomes()
    known.note(settled(PullKind.DEAD, (4, 5)))
    known.skip([(7, 9)])

    assert known.within(3, 12) == [(4, 5, "dead"), (7, 9, "skipped")]


def test_a_new_generation_begins_with_what_was_skipped_and_knows_nothing_below() -> None:
    known = Outcomes()
    known.note(settled(PullKind.DEAD, (4, 5)))
    known.begin(7, 10)

    assert known.within(4, 12) == [(4, 7, "unknown"), (7, 10, "skipped")]


def test_of_a_scattered_reset_the_newest_ranges_are_known() -> None:
    known = Outcomes()
    known.skip([(3 * row, 3 * row + 1) for row in range(KEPT_MAX + 1)])

    assert known.within(0, 1) == [(0, 1, "unknown")]
    assert known.within(3, 4) == [(3, 4, "skipped")]
    assert known.within(4, 6) == []


def test_what_was_cut_off_never_happened() -> None:
    known = Outcomes()
    known.note(settled(PullKind.DEAD, (4, 8), (9, 10)))
    known.note(LaneEvent(PullKind.CUT, ((6, 20, 0),)))

    assert known.within(0, 20) == [(4, 6, "dead")]


def test_a_snapshot_keeps_the_newest() -> None:
    known = Outcomes()
    for sequence in range(0, 2 * outcomes.SAVED_MAX + 4, 2):
        known.note(settled(PullKind.DEAD, (sequence, sequence + 1)))
    pieces, floor = known.saved()
    again = Outcomes(pieces, floor)

    assert len(pieces) == outcomes.SAVED_MAX
    assert again.within(0, 4) == [(0, 3, "unknown")]
    assert again.within(4, 6) == [(4, 5, "dead")]
    assert known.within(0, 4) == [(0, 1, "dead"), (2, 3, "dead")]
