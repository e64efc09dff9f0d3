"""What acks, retries and rejects do to the rows of a consumer, and what has to follow. Pure.

Every outcome that a consumer reports is applied to the lane of its group at once; what the rest of
the broker has to do about it (write, move to the dead letters, hand out) is returned as a
`SettleResult`. The moment and the chance of a retry are handed in. Never writes and never wakes
anything: `ack.py` does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.failure_notes import pack_failure
from ternmq.broker.groups.groups import LEASE_GROUP_MASK
from ternmq.broker.groups.lane import NO_REASON, Why
from ternmq.broker.groups.lane_event import LaneEvent, Piece, Settled
from ternmq.broker.groups.lease import RetryRule
from ternmq.core.errors import ProtocolError
from ternmq.core.range_set import RangeSet
from ternmq.core.retry import AFTER_MAX_MS
from ternmq.wire.messages.pull import Done

NUMBER_MAX = 2**63


@dataclass(frozen=True, slots=True)
class DeadRows:
    """Rows of a group that move to its dead letters, and why."""

    group: ConsumerGroup
    pieces: list[Piece]
    reason: str
    why: Why = NO_REASON
    """What the consumer said this time; without it, what was said the time before is kept."""
    expired: bool = False


@dataclass(frozen=True, slots=True)
class SettleMoment:
    """What deciding needs besides the rows; one for all outcomes of a request, so that rows that
    failed alike stay one range."""

    now: int
    """Of the clock that only goes forward."""
    now_ms: Callable[[], int]
    """The time of day; asked only where a consumer says why."""
    chance: float
    given_out: Callable[[int], bool]
    """Was there ever a lease of this number?"""


@dataclass(slots=True)
class SettleResult:
    """What became of the rows of a request, and what has to follow."""

    by_key: bool = False
    """Of detached leases: everything that was late is named."""
    settled: int = 0
    late: int = 0
    """Rows that were not this consumer's any more."""
    late_rows: list[tuple[int, int, int]] = field(default_factory=list)
    """Which did not count, as lease, first, end: of ordered groups, detached leases, and rejects of
    any."""
    moving: list[DeadRows] = field(default_factory=list)
    """To be copied to the dead letters, then marked."""
    events: dict[ConsumerGroup, list[LaneEvent]] = field(default_factory=dict)
    """To be written."""
    touched: dict[int, ConsumerGroup] = field(default_factory=dict)
    """Groups, by id, that may have rows to hand out now, or at another moment than before."""
    freed: list[ConsumerGroup] = field(default_factory=list)
    """Groups of which something is not in flight any more, while that is waited for."""

    def count(self, group: ConsumerGroup, result: Settled) -> None:
        self.settled += result.settled
        self.late += result.late
        self.events.setdefault(group, []).extend(result.changes)
        if group.order is not None:
            self.touched[group.id] = group
        elif group.full:
            self.freed.append(group)


def settle(
    groups: Sequence[ConsumerGroup],
    done: Sequence[Done],
    moment: SettleMoment,
    keys: Mapping[int, int] | None = None,
) -> SettleResult:
    """Apply what is said about rows of these groups: by a consumer that was handed them, or, with
    the keys of detached leases, by anybody. What such a lease does not hold any more is late."""
    found = SettleResult(by_key=keys is not None)
    rules: dict[tuple[ConsumerGroup, int], RetryRule] = {}
    for item, acked in _steps(done):
        group = group_of(groups, item.lease)
        if (
            group is None
            or group.deleted
            or not moment.given_out(item.lease)
            or not may_settle(group, item.lease, keys)
        ):
            found.late += sum(end - first for first, end in acked) or item.end - item.first
            if found.by_key or item.kind == "reject":
                ranges = acked or [(item.first, item.end)]
                found.late_rows += [(item.lease, first, end) for first, end in ranges]
        elif acked:
            strict = group.order is not None or found.by_key
            lease = group.lane.leases.get(item.lease)
            result = group.lane.ack_all(item.lease, acked, strict=strict)
            found.count(group, result)
            if lease is not None and result.settled:
                group.handled(lease, result.settled, moment.now)
            if strict and result.late:
                found.late_rows += _without(item.lease, acked, result.changes)
        elif item.kind == "retry":
            _retry(found, group, item, moment, rules)
        elif item.kind == "back":
            found.touched[group.id] = group
            result = group.lane.give_back(item.lease, item.first, item.end)
            found.count(group, result)
            if found.by_key and result.late:
                found.late_rows += _without(item.lease, [(item.first, item.end)], result.changes)
        else:
            _reject(found, group, item, moment)
    return found


def _without(
    lease: int, acked: list[tuple[int, int]], changes: list[LaneEvent]
) -> list[tuple[int, int, int]]:
    """The rows of an ack that did not count."""
    counted = RangeSet((a, b) for change in changes for a, b, _ in change.ranges)
    return [(lease, a, b) for first, end in acked for a, b in counted.gaps(first, end)]


def _retry(
    found: SettleResult,
    group: ConsumerGroup,
    item: Done,
    moment: SettleMoment,
    rules: dict[tuple[ConsumerGroup, int], RetryRule],
) -> None:
    """The rows come again; those whose last attempt this was move to the dead letters."""
    after = min(max(item.after_ms, -1), AFTER_MAX_MS)
    rule = rules.get((group, after)) or group.retry_rule(after, moment.chance)
    rules[group, after] = rule
    why = _why(item, moment)
    result = group.lane.retry(item.lease, item.first, item.end, rule=rule, now=moment.now, why=why)
    if result.moving:
        reason = f"failed {rule.attempts_max} times: {item.reason or 'no reason given'}"
        found.moving.append(DeadRows(group, list(result.moving), reason, why))
    found.touched[group.id] = group
    found.count(group, result)
    if group.order is not None and not result.settled and not result.moving:
        found.late_rows.append((item.lease, item.first, item.end))
    elif result.late and found.by_key:
        taken = RangeSet((a, b) for each in result.changes for a, b, _ in each.ranges)
        for a, b, _ in result.moving:
            taken.add(a, b)
        found.late_rows += [(item.lease, a, b) for a, b in taken.gaps(item.first, item.end)]


def _reject(found: SettleResult, group: ConsumerGroup, item: Done, moment: SettleMoment) -> None:
    """The rows move to the dead letters now; they are settled when their copies are safe."""
    pieces = group.lane.begin_move(item.lease, item.first, item.end)
    count = sum(end - first for first, end, _ in pieces)
    found.settled += count
    found.late += item.end - item.first - count
    if pieces:
        found.moving.append(DeadRows(group, pieces, item.reason, _why(item, moment)))
    if count < item.end - item.first:  # Whoever waits for it would take these for dead.
        taken = RangeSet((a, b) for a, b, _ in pieces)
        found.late_rows += [(item.lease, a, b) for a, b in taken.gaps(item.first, item.end)]


def _why(item: Done, moment: SettleMoment) -> Why:
    """What a consumer said, as it is kept."""
    if item.error is None:
        return NO_REASON
    return Why(pack_failure(*item.error), moment.now_ms())


def check_outcomes(done: Sequence[Done]) -> None:
    """Before anything is done: all of it or none."""
    for item in done:
        if not 0 <= item.first < item.end < NUMBER_MAX or not 0 < item.lease < NUMBER_MAX:
            raise ProtocolError(f"{item.kind} of {item.first}..{item.end}, lease {item.lease}")


def _steps(done: Sequence[Done]) -> Iterator[tuple[Done, list[tuple[int, int]]]]:
    """Outcomes in order; acks of one lease that follow each other are one step, as ranges."""
    acked: list[tuple[int, int]] = []
    before: Done | None = None
    for item in done:
        if before is not None and (item.kind != "ack" or item.lease != before.lease):
            yield before, acked
            acked, before = [], None
        if item.kind == "ack":
            acked.append((item.first, item.end))
            before = item
        else:
            yield item, []
    if before is not None:
        yield before, acked


def may_settle(group: ConsumerGroup, lease_id: int, keys: Mapping[int, int] | None) -> bool:
    """Without keys everything but detached leases; with keys only those that they open."""
    lease = group.lane.leases.get(lease_id)
    if keys is None:
        return lease is None or not lease.lock
    return lease is not None and lease.opens(keys.get(lease_id))


def group_of(groups: Sequence[ConsumerGroup], lease: int) -> ConsumerGroup | None:
    """The group that a lease belongs to; its number tells, also when the lease is long gone."""
    mark = lease & LEASE_GROUP_MASK
    for group in groups:
        if group.id & LEASE_GROUP_MASK == mark:
            return group
    return None
