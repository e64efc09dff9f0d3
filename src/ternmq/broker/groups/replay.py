"""Replaying a lane: doing again what the pull log says was done.

Applying all changes of a lane in order to an empty one gives the lane as it was. Records at the end
of the log may be lost; then a change can speak of rows whose hand-out is not known, and rows below
them become ready: handed out again, never forgotten.
"""

from ternmq.broker.groups.failure_notes import FailureNote
from ternmq.broker.groups.lane import Lane
from ternmq.broker.groups.lane_event import BY_POLICY, LaneEvent
from ternmq.broker.groups.lease import DETACHED, NEVER, Lease
from ternmq.storage.pull.record import PullKind


def apply(
    lane: Lane, change: LaneEvent, *, now: int, waited_ms: int, grace_until: int, offset: int = -1
) -> None:
    """Do again what the pull log says was done. `waited_ms`: how long ago it was written."""
    highest = max((piece[1] for piece in change.ranges), default=0)
    if change.kind not in (PullKind.RESET, PullKind.CUT):
        lane.end = max(lane.end, highest)
    match change.kind:
        case PullKind.HANDED_OUT:
            _hand_out(lane, change, _kept_until(change, now, waited_ms, grace_until))
        case PullKind.EXTENDED:
            held = lane.leases.get(change.lease)
            if held is not None:
                for first, end, _ in change.ranges:
                    held.extend(first, end, _kept_until(change, now, waited_ms, grace_until))
        case (
            PullKind.ACKED
            | PullKind.CONFIRM
            | PullKind.DEAD
            | PullKind.EXPIRED
            | PullKind.SKIPPED
            | PullKind.FILTERED
        ):
            _settled(lane, change)
        case PullKind.RETRY | PullKind.KILLED:
            after_ms = change.argument & (BY_POLICY - 1)
            failed_at = now - max(0, waited_ms) if change.argument & BY_POLICY else None
            due = now + max(0, min(after_ms, after_ms - waited_ms))
            for first, end, attempt in change.ranges:
                if change.kind is PullKind.KILLED:
                    lane.poison.add(first, end)
                else:
                    lane.poison.forget(first, end)
                lane.forget(first, end)
                lane.wait(first, end, attempt, due, failed_at)
                lane.note(first, end, FailureNote(offset=offset) if change.text else None)
        case PullKind.STOPPED:
            for first, end, attempt in change.ranges:
                lane.poison.forget(first, end)
                lane.forget(first, end)
                lane.wait(first, end, attempt, NEVER, None)
                lane.note(first, end, FailureNote(offset=offset) if change.text else None)
        case PullKind.RETURNED | PullKind.LOST:
            for first, end, attempt in change.ranges:
                if change.kind is PullKind.LOST:
                    lane.poison.add(first, end)
                lane.forget(first, end)
                lane.returned.put(first, end, attempt)
        case PullKind.RESET:
            lane.end = max(lane.end, lane.next)
            lane.go_to(change.ranges[0][0])
        case PullKind.CUT:
            lane.cut_to(change.ranges[0][0])
        case _:
            raise AssertionError(f"{change.kind!r} is not a step of a lane")


def _kept_until(change: LaneEvent, now: int, waited_ms: int, grace_until: int) -> int:
    """Others wait for their sessions; a detached lease lasts as long as it was asked for, and not
    less than the grace: nobody could settle while the broker was away."""
    return max(grace_until, now + change.argument - max(0, waited_ms))


def _hand_out(lane: Lane, change: LaneEvent, kept_until: int) -> None:
    owner = DETACHED if change.text else 0
    lease = Lease(change.lease, change.session, owner, kept_until, lock=change.text)
    lane.newest_lease = max(lane.newest_lease, change.lease)
    for first, end, attempt in change.ranges:
        for a, b in lane.done.gaps(first, end):
            lane.forget(a, b)
            lease.rows.put(a, b, attempt)
    if lease.rows.count:
        lane.leases[lease.id] = lease


def _settled(lane: Lane, change: LaneEvent) -> None:
    for first, end, _ in change.ranges:
        lane.forget(first, end)
        lane.poison.forget(first, end)
        lane.failure_notes.cut(first, end)
        added = lane.done.add(first, end)
        if change.kind is PullKind.DEAD:
            lane.dead += added
        elif change.kind is PullKind.EXPIRED:
            lane.expired += added
        elif change.kind is PullKind.SKIPPED:
            lane.skipped += added
        elif change.kind is PullKind.FILTERED:
            lane.filtered += added
