"""Why rows failed: kept as places in the pull log, through replay and snapshot."""

from ternmq.broker.delivery.failure_texts import FailureTexts
from ternmq.broker.groups import snapshot
from ternmq.broker.groups.failure_notes import (
    NOTE_SIZE,
    TRACEBACK_LETTERS_MAX,
    FailureCache,
    FailureNote,
    pack_failure,
    read_failure,
)
from ternmq.broker.groups.lane import Lane, Why
from ternmq.broker.groups.lane_event import LaneEvent
from ternmq.broker.groups.lease import Lease, RetryRule
from ternmq.broker.groups.replay import apply
from ternmq.wire.messages.groups import GroupSettings

RULE = RetryRule("fixed:1s", 0)


def failing_lane() -> tuple[Lane, list[LaneEvent]]:
    lane = Lane(0)
    lane.grow(10)
    changes = [lane.hand_out(Lease(1, bytes(16), 1, 60_000), [], 10)]
    for first, end, text in ((0, 4, "down"), (6, 7, "bad")):
        why = Why(pack_failure("Error", text, ""), 77)
        changes += lane.retry(1, first, end, rule=RULE, now=0, why=why).changes
    return lane, changes


def test_a_note_holds_its_text_until_the_record_is_written() -> None:
    lane, changes = failing_lane()
    [(first, end, note), _] = list(lane.failure_notes)

    assert (first, end) == (0, 4)
    assert note.text is not None
    assert read_failure(note.text, note.at_ms) == ("Error", "down", "", 77)
    assert changes[1].note is note
    note.written(4096)
    assert note.offset == 4096
    assert not note.text


def test_the_newest_texts_stay_in_memory_and_older_ones_go() -> None:
    recall = FailureCache(size_max=3 * (NOTE_SIZE + 10))
    failure_notes = [FailureNote(text=b"%010d" % number, at_ms=number) for number in range(5)]

    for number, note in enumerate(failure_notes):
        recall.written(note, 100 * number)

    assert [note.offset for note in failure_notes] == [0, 100, 200, 300, 400]
    assert [note.text for note in failure_notes[:2]] == [None, None]
    assert [note.text for note in failure_notes[2:]] == [b"%010d" % number for number in (2, 3, 4)]
    assert FailureTexts.at_hand(failure_notes[2:])
    assert not FailureTexts.at_hand(failure_notes[1:])


def test_a_text_whose_record_could_not_be_written_is_not_kept() -> None:
    note = FailureNote(text=b"x", at_ms=1)

    FailureCache().written(note, None)

    assert (note.text, note.offset) == (None, -1)
    assert FailureTexts.at_hand([note])  # There is nothing to read.


def test_a_record_that_could_not_be_written_leaves_nothing_to_know() -> None:
    lane, changes = failing_lane()
    assert changes[1].note is not None

    changes[1].note.written(None)

    assert lane.failure_notes.get(0) is changes[1].note
    assert (changes[1].note.text, changes[1].note.offset) == (None, -1)


def test_replay_and_snapshot_know_where_the_texts_lie() -> None:
    lane, changes = failing_lane()
    for number, change in enumerate(changes):
        if change.note is not None:
            change.note.written(100 * number)
    replayed = Lane(0)
    for number, change in enumerate(changes):
        apply(replayed, change, now=0, waited_ms=0, grace_until=9, offset=100 * number)
    text = snapshot.save(lane, group="g", created_at_ms=0, now=0, settings=GroupSettings())
    _, loaded = snapshot.load(text, now=0, waited_ms=0, grace_until=9)

    for found in (lane, replayed, loaded):
        assert [(a, b, note.offset) for a, b, note in found.failure_notes] == [
            (0, 4, 100),
            (6, 7, 200),
        ]


def test_settled_rows_leave_no_note() -> None:
    lane, _ = failing_lane()
    lane.tick(1_000)
    lane.hand_out(Lease(2, bytes(16), 1, 60_000), lane.peek_returned(10), 10)

    lane.ack(2, 0, 7)

    assert not lane.failure_notes.count


def test_a_retry_without_a_reason_forgets_the_one_before() -> None:
    lane, _ = failing_lane()
    lane.tick(1_000)
    lane.hand_out(Lease(2, bytes(16), 1, 60_000), lane.peek_returned(10), 10)

    lane.retry(2, 0, 2, rule=RULE, now=1_000)

    assert [(a, b) for a, b, _ in lane.failure_notes] == [(2, 4), (6, 7)]


def test_texts_of_peers_are_cut_and_what_does_not_read_is_nothing() -> None:
    packed = pack_failure("T" * 10_000, "t" * 100_000, "x" * 100_000 + "end")
    known = read_failure(packed, 1)

    assert known is not None
    assert len(known.traceback) == TRACEBACK_LETTERS_MAX
    assert known.traceback.endswith("end")
    assert len(packed) < 10_000
    assert read_failure(b"\xff", 1) is None
