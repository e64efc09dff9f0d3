"""A lane as bytes: what a SNAPSHOT record in the pull log holds.

Replaying a group starts at its latest snapshot instead of at its birth. Moments are written as
"milliseconds from now", because the clock that only goes forward starts anew with the machine.
"""

from typing import TypeVar

import msgspec

from ternmq.broker.groups.failure_notes import FailureNote
from ternmq.broker.groups.lane import Lane
from ternmq.broker.groups.lease import DETACHED, Lease
from ternmq.broker.groups.outcomes import Outcomes
from ternmq.broker.groups.poison import PoisonSuspects
from ternmq.broker.groups.row_states import SavedRows
from ternmq.core.errors import Corrupt
from ternmq.core.interval_map import IntervalMap
from ternmq.core.range_set import RangeSet
from ternmq.wire.messages.groups import GroupSettings

Piece = tuple[int, int, int]
T = TypeVar("T")


class LeaseState(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Fields may be added at the end, with a default."""

    id: int
    session: bytes
    rows: list[Piece]
    lock: bytes = b""
    """Of a detached lease."""
    kept: list[Piece] = []
    """Of a detached lease: first, end, milliseconds until these rows are overdue"""


class LaneState(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Fields may be added at the end, with a default."""

    group: str
    created_at_ms: int
    start: int
    next: int
    end: int
    generation: int
    done: list[tuple[int, int]]
    returned: list[Piece]
    waiting: list[tuple[int, int, int, int, int]]
    """first, end, attempt, milliseconds until due, milliseconds since it failed or -1"""
    leases: list[LeaseState]
    dead: int
    skipped: int
    expired: int
    filtered: int
    settings: GroupSettings = GroupSettings()
    poison: list[Piece] = []
    """first, end, how many leases were lost with these rows"""
    outcomes: list[Piece] = []
    """first, end, kind of the change that settled these rows; the newest ones"""
    unacked_floor: int = -1
    """Below this the list is not complete; -1 in snapshots that are older than the list."""
    failure_notes: list[Piece] = []
    """first, end, where in the pull log it says why these rows failed"""

    def kept_outcomes(self) -> Outcomes:
        """How rows were settled where not by an ack, as far as it is known."""
        floor = self.unacked_floor
        if floor < 0:
            floor = self.next if self.dead or self.skipped or self.expired or self.filtered else 0
        return Outcomes(self.outcomes, floor)


class Birth(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What a GROUP_MADE record says besides ids: the name and where it starts."""

    group: str
    start: int


def pieces_of(lane: Lane) -> int:
    """How many ranges a snapshot names: what it costs."""
    held = sum(len(lease.rows) for lease in lane.leases.values())
    return len(lane.done) + len(lane.returned) + len(lane.waiting) + len(lane.failure_notes) + held


_encoder = msgspec.msgpack.Encoder()


def save(
    lane: Lane,
    *,
    group: str,
    created_at_ms: int,
    now: int,
    settings: GroupSettings,
    outcomes: Outcomes | None = None,
) -> bytes:
    """Rows on their way to the dead letters are saved as ready: better twice than lost."""
    returned = lane.returned
    if lane.moving.count:
        returned = IntervalMap([*lane.returned, *lane.moving])
    pieces, floor = (outcomes or Outcomes()).saved()
    state = LaneState(
        group=group,
        created_at_ms=created_at_ms,
        start=lane.start,
        next=lane.next,
        end=lane.end,
        generation=lane.generation,
        done=list(lane.done),
        returned=list(returned),
        waiting=[
            (a, b, wait.attempt, max(0, wait.due - now), _since(wait.failed_at, now))
            for a, b, wait in lane.waiting
        ],
        leases=[
            LeaseState(
                id=lease.id,
                session=lease.session,
                rows=list(lease.rows),
                lock=lease.lock,
                kept=_kept(lease, now) if lease.lock else [],
            )
            for lease in lane.leases.values()
        ],
        dead=lane.dead,
        skipped=lane.skipped,
        expired=lane.expired,
        filtered=lane.filtered,
        settings=settings,
        poison=list(lane.poison.rows),
        outcomes=pieces,
        unacked_floor=floor,
        failure_notes=[
            (a, b, note.offset) for a, b, note in lane.failure_notes if note.offset >= 0
        ],
    )
    return _encoder.encode(state)


def load(text: bytes, *, now: int, waited_ms: int, grace_until: int) -> tuple[LaneState, Lane]:
    """The lane as it was; leases wait for their sessions until `grace_until`."""
    state = _decode(text, LaneState)
    notes = ((a, b, FailureNote(offset=offset)) for a, b, offset in state.failure_notes)
    saved = SavedRows(
        next=state.next,
        end=state.end,
        generation=state.generation,
        returned=IntervalMap(state.returned),
        poison=PoisonSuspects(state.poison),
        failure_notes=IntervalMap(notes),
        done=RangeSet(state.done),
        dead=state.dead,
        skipped=state.skipped,
        expired=state.expired,
        filtered=state.filtered,
    )
    lane = Lane(state.start, saved)
    waited_ms = max(0, waited_ms)
    for first, end, attempt, until, since in state.waiting:
        failed_at = now - waited_ms - since if since >= 0 else None
        lane.wait(first, end, attempt, now + max(0, until - waited_ms), failed_at)
    for lease in state.leases:
        rows: IntervalMap[int] = IntervalMap(lease.rows)
        owner = DETACHED if lease.lock else 0
        found = Lease(lease.id, lease.session, owner, grace_until, rows, lock=lease.lock)
        for first, end, left_ms in lease.kept if lease.lock else ():
            found.extend(first, end, max(grace_until, now + left_ms - waited_ms))
        lane.leases[lease.id] = found
    return state, lane


def _kept(lease: Lease, now: int) -> list[Piece]:
    deadlines = lease.deadlines or [(*lease.rows.bounds(), lease.deadline)]
    return [(first, end, max(0, until - now)) for first, end, until in deadlines]


def _since(failed_at: int | None, now: int) -> int:
    return -1 if failed_at is None else max(0, now - failed_at)


def settings_text(settings: GroupSettings) -> bytes:
    return _encoder.encode(settings)


def read_settings(text: bytes) -> GroupSettings:
    return _decode(text, GroupSettings)


def birth_text(group: str, start: int) -> bytes:
    return _encoder.encode(Birth(group=group, start=start))


def read_birth(text: bytes) -> Birth:
    return _decode(text, Birth)


def _decode(text: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(text, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise Corrupt(f"a group's record in the pull log does not read: {error}") from error
