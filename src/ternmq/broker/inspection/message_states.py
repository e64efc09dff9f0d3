"""Where single rows are in the lane of one group: the state of each, who has it, what it waits for.

Asked of the lane's ranges, in memory; a lane with many leases is gone through once for all rows.
What is told in milliseconds since 1970 is worked out by a `LookMoment`, as lanes have a clock of
their own. Pure: no loop, no disk; changes nothing.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ternmq.broker.groups.consumer_group import ConsumerGroup, ConsumerSession
from ternmq.broker.groups.failure_notes import FailureNote
from ternmq.broker.groups.lease import Lease
from ternmq.wire.inspection.rows import Holder, LeaseInfo, MessageState, RowStanding


class LookMoment(NamedTuple):
    """Now, by the clock of lanes and by the time of day."""

    lane: int
    day: int

    def time_of(self, moment: int) -> int:
        """The time of day of a moment of lanes; 0 for one that is not known."""
        return self.day + moment - self.lane if moment else 0


class StateFound(NamedTuple):
    """A row's state, and where to read why it failed."""

    state: MessageState
    note: FailureNote | None


def lane_name(group: ConsumerGroup) -> str:
    return "private" if group.beside else "topic"


def states_of(
    group: ConsumerGroup, sequences: Sequence[int], moment: LookMoment
) -> list[StateFound]:
    """One for each of them, which ascend."""
    holders = _leases_with(group, sequences)
    return [_state_of(group, each, holders.get(each), moment) for each in sequences]


def _leases_with(group: ConsumerGroup, sequences: Sequence[int]) -> dict[int, Lease]:
    """In whose hands they are, of those that are in flight."""
    found: dict[int, Lease] = {}
    for lease in group.lane.leases.values():
        low, high = lease.rows.bounds()
        at = bisect_left(sequences, low)
        while at < len(sequences) and sequences[at] < high:
            if lease.rows.get(sequences[at]) is not None:
                found[sequences[at]] = lease
            at += 1
    return found


def _state_of(
    group: ConsumerGroup, sequence: int, lease: Lease | None, moment: LookMoment
) -> StateFound:
    lane = group.lane
    note = lane.failure_notes.get(sequence)

    def state(word: RowStanding, attempt: int = 0, **more: Any) -> StateFound:
        row = MessageState(
            group=group.name,
            lane=lane_name(group),
            sequence=sequence,
            state=word,
            attempt=attempt,
            now_ms=moment.day,
        )
        return StateFound(replace(row, **more), note)

    if sequence >= lane.end:
        return state("unstored")
    if sequence < lane.start:
        return state("before")
    if sequence in lane.done:
        return state(_settled(group, sequence))
    if lease is not None:
        return state(
            "in_flight",
            lease.rows.get(sequence) or 1,
            holder=holder_of(group, lease),
            since_ms=moment.time_of(lease.since),
            until_ms=moment.time_of(lease.deadline),
            started=sequence in lease.started,
        )
    wait = lane.waiting.get(sequence)
    if wait is not None and wait.stopped:
        return state("stopped", wait.attempt)
    if wait is not None:
        return state("waiting", wait.attempt, due_ms=moment.time_of(wait.due))
    moving = lane.moving.get(sequence)
    if moving is not None:
        return state("moving", moving)
    return state("ready", lane.returned.get(sequence) or 1, **_order_of(group, sequence))


def _settled(group: ConsumerGroup, sequence: int) -> RowStanding:
    """How; who is not among those that were settled otherwise was acked."""
    for _, _, outcome in group.outcomes.within(sequence, sequence + 1):
        return "settled" if outcome == "unknown" else outcome
    return "acked"


def _order_of(group: ConsumerGroup, sequence: int) -> dict[str, Any]:
    """What an ordered group waits for before this row."""
    order = group.order
    if order is None:
        return {}
    before = order.before(sequence)
    if before is not None:
        return {"blocking_key": before[0], "blocking_sequence": before[1]}
    return {"slot_held": order.waits_elsewhere(sequence)}


def holder_of(group: ConsumerGroup, lease: Lease) -> Holder:
    """The consumer that has a lease."""
    return _holder(group.consumers.get(lease.owner), lease.session)


def holder_of_session(group: ConsumerGroup | None, session: bytes) -> Holder:
    """The consumer that had one, as far as it is still there."""
    there = group.consumers.values() if group is not None else ()
    consumer = next((each for each in there if each.session == session), None)
    return _holder(consumer, session)


def _holder(consumer: ConsumerSession | None, session: bytes) -> Holder:
    hello = consumer.peer.hello if consumer is not None else None
    if hello is None:
        return Holder(session=session.hex())
    return Holder(session=session.hex(), app=hello.app, host=hello.host, pid=hello.pid)


def lease_info(group: ConsumerGroup, lease: Lease, moment: LookMoment) -> LeaseInfo:
    """A lease as people see it."""
    first, end = lease.rows.bounds()
    return LeaseInfo(
        id=lease.id,
        lane=lane_name(group),
        holder=holder_of(group, lease),
        rows=lease.rows.count,
        started=sum(
            b - a for low, high, _ in lease.rows for a, b in lease.started.overlap(low, high)
        ),
        first=first,
        end=end,
        attempt=max(attempt for _, _, attempt in lease.rows),
        since_ms=moment.time_of(lease.since),
        until_ms=moment.time_of(lease.deadline),
        vanished=lease.vanished,
    )
