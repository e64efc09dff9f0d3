"""Going through what waits, a bit at a time."""

from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.failure_notes import FailureNote, pack_failure
from ternmq.broker.groups.lane import Lane
from ternmq.broker.inspection import waiting_rows
from ternmq.broker.inspection.waiting_rows import STEP, WaitingScan

NOWHERE = (-1, -1, -1)


def group_with(rows: int) -> ConsumerGroup:
    """Each row fails alone: those with high sequences are due first."""
    lane = Lane(0)
    lane.grow(rows)
    lane.next = rows
    for sequence in range(rows):
        lane.wait(sequence, sequence + 1, 2, 1_000_000 - sequence, None)
        text = pack_failure("ValueError" if sequence % 2 else "KeyError", "gone", "")
        lane.note(sequence, sequence + 1, FailureNote(text=text))
    return ConsumerGroup(id=1, name="g", topic_id=1, topic="t", created_at_ms=0, lane=lane)


def scanned(scan: WaitingScan, group: ConsumerGroup) -> int:
    return sum(1 for _ in scan.steps([group]))


def test_pages_follow_each_other_by_due_time() -> None:
    group = group_with(10)
    first, second = WaitingScan(NOWHERE, 6, errors=False), None
    scanned(first, group)
    second = WaitingScan(first.page[-1].cursor, 6, errors=False)
    scanned(second, group)

    assert [piece.first for piece in first.page + second.page] == list(range(9, -1, -1))
    assert (first.more, second.more) == (True, False)


def test_many_rows_are_looked_at_in_steps_and_counted_by_error() -> None:
    scan = WaitingScan(NOWHERE, 1, errors=True)

    assert scanned(scan, group_with(3 * STEP)) == 3
    assert scan.counts == {"KeyError: gone": 3 * STEP // 2, "ValueError: gone": 3 * STEP // 2}
    assert scan.rows == 3 * STEP


def test_texts_that_lie_on_disk_are_left_for_who_can_read() -> None:
    group = group_with(2)
    note = FailureNote(offset=4_096)
    group.lane.note(0, 1, note)
    group.lane.failure_notes.cut(1, 2)
    scan = WaitingScan(NOWHERE, 5, errors=True)
    scanned(scan, group)

    assert scan.unread == {note: 1}
    assert scan.counts == {"": 1}, "of the other nothing is known"


def test_a_look_ends_at_its_bound(monkeypatch: object) -> None:
    scan = WaitingScan(NOWHERE, 1, errors=False)
    scan._left = 10

    scanned(scan, group_with(STEP + 10))

    assert scan.rows == STEP
    assert waiting_rows.SCANNED_MAX > STEP
