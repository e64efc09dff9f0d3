"""Replaying a lane: doing again what the pull log says was done.

Applying all changes of a lane in order to an empty one gives the lane as it was. Records at the end
of the log may be lost; then a change can speak of rows whose hand-out is not known, and rows below
them become ready: handed out again, never forgotten.
"""

from ternmq.broker.groups.failure_notes import Note
from ternmq.broker.groups.lane import Lane
from ternmq.broker.groups.lane_event import BY_POLICY, Change
from ternmq.broker.groups.lease import NEVER, Lease
from ternmq.storage.pull.pull_log import Kind


def apply(
    lane: Lane, change: Change, *, now: int, waited_ms: int, grace_until: int, offset: int = -1
) -> None:
    """Do again what the pull log says was done. `waited_ms`: how long ago it was written."""
    highest = max((piece[1] for piece in change.ranges), default=0)
    if change.kind not in (Kind.RESET, Kind.CUT):
        lane.end = max(lane.end, highest)
    match change.kind:
        case Kind.HANDED_OUT:
            _hand_out(lane, change, grace_until)
        case Kind.ACKED | Kind.CONFIRM | Kind.DEAD | Kind.EXPIRED | Kind.SKIPPED | Kind.FILTERED:
            _settled(lane, change)
        case Kind.RETRY | Kind.KILLED:
            after_ms = change.argument & (BY_POLICY - 1)
            failed_at = now - max(0, waited_ms) if change.argument & BY_POLICY else None
            due = now + max(0, min(after_ms, after_ms - waited_ms))
            for first, end, attempt in change.ranges:
                if change.kind is Kind.KILLED:
                    lane.losses.add(first, end)
                else:
                    lane.losses.forget(first, end)
                lane.forget(first, end)
                lane.wait(first, end, attempt, due, failed_at)
                lane.note(first, end, Note(offset=offset) if change.text else None)
        case Kind.STOPPED:
            for first, end, attempt in change.ranges:
                lane.losses.forget(first, end)
                lane.forget(first, end)
                lane.wait(first, end, attempt, NEVER, None)
                lane.note(first, end, Note(offset=offset) if change.text else None)
        case Kind.RETURNED | Kind.LOST:
            for first, end, attempt in change.ranges:
                if change.kind is Kind.LOST:
                    lane.losses.add(first, end)
                lane.forget(first, end)
                lane.returned.put(first, end, attempt)
        case Kind.RESET:
            lane.end = max(lane.end, lane.next)
            lane.go_to(change.ranges[0][0])
        case Kind.CUT:
            lane.cut_to(change.ranges[0][0])
        case _:
            raise AssertionError(f"{change.kind!r} is not a step of a lane")


def _hand_out(lane: Lane, change: Change, grace_until: int) -> None:
    lease = Lease(change.lease, change.session, 0, grace_until)
    lane.newest_lease = max(lane.newest_lease, change.lease)
    for first, end, attempt in change.ranges:
        for a, b in lane.done.gaps(first, end):
            lane.forget(a, b)
            lease.rows.put(a, b, attempt)
    if lease.rows.count:
        lane.leases[lease.id] = lease


def _settled(lane: Lane, change: Change) -> None:
    for first, end, _ in change.ranges:
        lane.forget(first, end)
        lane.losses.forget(first, end)
        lane.notes.cut(first, end)
        added = lane.done.add(first, end)
        if change.kind is Kind.DEAD:
            lane.dead += added
        elif change.kind is Kind.EXPIRED:
            lane.expired += added
        elif change.kind is Kind.SKIPPED:
            lane.skipped += added
        elif change.kind is Kind.FILTERED:
            lane.filtered += added
