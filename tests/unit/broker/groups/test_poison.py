"""Rows lost with their consumers: who is suspected, who is counted, who never is."""

from ternmq.broker.groups import snapshot
from ternmq.broker.groups.lane import Lane
from ternmq.broker.groups.lane_event import LaneEvent
from ternmq.broker.groups.lease import Lease, RetryRule
from ternmq.broker.groups.replay import apply
from ternmq.storage.pull.record import PullKind
from ternmq.wire.messages.groups import GroupSettings

RULE = RetryRule("fixed:1s", 3)


class Story:
    """One lane whose consumers keep vanishing, with everything it wrote down."""

    def __init__(self, rows: int) -> None:
        self.lane = Lane(0)
        self.lane.grow(rows)
        self.now = 0
        self.lease = 0
        self.changes: list[LaneEvent] = []

    def hand_out(self, rows: int) -> int:
        self.lease += 1
        again = self.lane.peek_returned(rows)
        left = rows - sum(end - first for first, end, _ in again)
        new_end = min(self.lane.end, self.lane.next + left)
        lease = Lease(self.lease, bytes(16), 1, self.now + 10)
        self.changes.append(self.lane.hand_out(lease, again, new_end))
        return self.lease

    def hand_out_suspect(self) -> tuple[int, int]:
        piece = self.lane.suspect()
        assert piece is not None
        self.lease += 1
        lease = Lease(self.lease, bytes(16), 1, self.now + 10)
        self.changes.append(self.lane.hand_out(lease, [piece], self.lane.next))
        return self.lease, piece[0]

    def vanish(self) -> tuple[tuple[int, int, int], ...]:
        """Every consumer that holds something is lost; returns what dies of it."""
        self.lane.orphan(1, self.now)
        self.now += 10
        ticked = self.lane.tick(self.now, RULE)
        self.changes += ticked.changes
        self.lane.ledger()
        return ticked.moving


def test_a_lease_lost_once_comes_back_whole_and_uncounted() -> None:
    """Design 5: rows lost with a consumer return uncounted."""
    story = Story(10)
    story.hand_out(10)

    story.vanish()

    assert story.lane.peek_returned(10) == [(0, 10, 1)]
    assert story.lane.suspect() is None


def test_the_rows_of_a_lease_lost_twice_are_handed_out_one_by_one() -> None:
    story = Story(20)
    for _ in range(2):
        story.hand_out(10)
        story.vanish()

    assert story.lane.peek_returned(100) == []
    assert story.lane.suspect() == (0, 1, 1)
    assert story.lane.ledger().ready == 20
    story.hand_out(10)
    assert story.changes[-1].ranges == ((10, 20, 1),), "new rows go on together"


def test_only_what_was_alone_with_a_lost_consumer_is_counted_and_in_the_end_dies() -> None:
    """Design 5: a poison message cannot take its neighbours to the dead letters."""
    story = Story(5)
    for _ in range(2):
        story.hand_out(5)
        story.vanish()
    poison = 3
    attempts: list[int] = []
    moving: tuple[tuple[int, int, int], ...] = ()
    while story.lane.ledger().ready or story.lane.ledger().waiting_retry:
        if story.lane.suspect() is None:
            story.now += 1_000
            story.lane.tick(story.now, RULE)
            continue
        lease, row = story.hand_out_suspect()
        if row == poison:
            attempts.append(story.changes[-1].ranges[0][2])
            moving = story.vanish() or moving
        else:
            story.lane.ack(lease, row, row + 1)

    assert attempts == [1, 2, 3]
    assert moving == ((3, 4, 3),)
    assert story.lane.ledger().acked == 4


def test_a_killed_row_waits_by_the_groups_policy() -> None:
    story = Story(1)
    for _ in range(2):
        story.hand_out(1)
        story.vanish()
    story.hand_out_suspect()
    story.vanish()

    assert story.changes[-1].kind is PullKind.KILLED
    story.lane.tick(story.now + 999, RULE)
    assert story.lane.suspect() is None
    story.lane.tick(story.now + 1_000, RULE)
    assert story.lane.suspect() == (0, 1, 2)


def test_a_row_that_a_consumer_gave_back_itself_is_no_suspect_any_more() -> None:
    story = Story(2)
    for _ in range(2):
        story.hand_out(2)
        story.vanish()
    lease, row = story.hand_out_suspect()

    rule = RetryRule("default", 0, explicit_ms=0)
    story.lane.retry(lease, row, row + 1, rule=rule, now=story.now)
    story.lane.tick(story.now, RULE)

    assert story.lane.peek_returned(5) == [(0, 1, 2)]
    assert story.lane.suspect() == (1, 2, 1)


def test_rows_that_were_reported_as_started_are_tried_first() -> None:
    story = Story(10)
    for _ in range(2):
        lease = story.hand_out(10)
        story.lane.start_rows(lease, 6, 8)
        story.vanish()

    assert story.lane.suspect() == (6, 7, 1)


def test_a_consumer_that_is_stuck_before_it_started_a_row_does_not_count_against_it() -> None:
    """Design 5: attempts count only rows that the client reported started."""
    story = Story(1)
    for _ in range(2):
        story.hand_out(1)
        story.vanish()
    lease, _ = story.hand_out_suspect()
    story.lane.leases[lease].owner = 7  # Its connection is there: it is stuck, not gone.

    story.vanish()
    assert story.lane.suspect() == (0, 1, 1)

    lease, _ = story.hand_out_suspect()
    story.lane.leases[lease].owner = 7
    story.lane.start_rows(lease, 0, 1)
    story.vanish()
    assert story.lane.ledger().waiting_retry == 1


def test_leaving_in_peace_makes_nobody_a_suspect() -> None:
    story = Story(3)
    for _ in range(5):
        story.hand_out(3)
        story.lane.release(1)

    assert story.lane.peek_returned(3) == [(0, 3, 1)]


def test_what_is_known_about_losses_survives_a_restart() -> None:
    """By the records alone, and by a snapshot."""
    story = Story(6)
    for _ in range(2):
        story.hand_out(6)
        story.vanish()
    lease, row = story.hand_out_suspect()
    story.changes += story.lane.ack(lease, row, row + 1).changes
    story.hand_out_suspect()
    story.vanish()

    replayed = Lane(0)
    for change in story.changes:
        apply(replayed, change, now=0, waited_ms=0, grace_until=5)
    replayed.grow(6)
    text = snapshot.save(story.lane, group="g", created_at_ms=0, now=0, settings=GroupSettings())
    _, loaded = snapshot.load(text, now=0, waited_ms=0, grace_until=5)

    assert list(story.lane.poison.rows) == [(1, 2, 3), (2, 6, 2)]
    for lane in (replayed, loaded):
        assert lane.poison.rows == story.lane.poison.rows
        assert lane.poison.suspects == story.lane.poison.suspects
        assert lane.ledger() == story.lane.ledger()
