"""All consumer groups of a broker: found by topic and name, woken when due, replayed at start.

Turns changes of lanes into pull-log records and, at start, pull-log records back into lanes. It
does no I/O: records go to the `record` that is handed in.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from heapq import heappop, heappush
from itertools import count

from ternmq.broker.groups import snapshot
from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.failure_notes import FailureCache
from ternmq.broker.groups.key_order import KeyOrder
from ternmq.broker.groups.lane import Lane
from ternmq.broker.groups.lane_event import LaneEvent
from ternmq.broker.groups.outcomes import STATES, Outcomes
from ternmq.broker.groups.replay import apply
from ternmq.core.clock import Clock
from ternmq.core.errors import GroupNotFound, OverLimit
from ternmq.core.log import get_logger
from ternmq.discovery.hidden_topics import RESERVED, lane_owner
from ternmq.security.access.quota import UserUse
from ternmq.storage.pull.record import PullKind, PullRecord
from ternmq.wire.messages.groups import GroupSettings

log = get_logger()

LEASE_GROUP_BITS = 24
GROUPS_MAX = 100_000
LEASE_GROUP_MASK = (1 << LEASE_GROUP_BITS) - 1
LEASES_FORGOTTEN_MAX = 1 << 20  # More than are given out in the seconds before a master dies.
"""Hand-outs are progress: a crash may forget so many of them, and their numbers."""
LANE_KINDS = frozenset(
    {
        PullKind.HANDED_OUT,
        PullKind.ACKED,
        PullKind.RETRY,
        PullKind.RETURNED,
        PullKind.DEAD,
        PullKind.EXPIRED,
        PullKind.SKIPPED,
        PullKind.FILTERED,
        PullKind.RESET,
        PullKind.CUT,
        PullKind.LOST,
        PullKind.KILLED,
        PullKind.STOPPED,
        PullKind.CONFIRM,
        PullKind.EXTENDED,
    }
)
SETTLING = frozenset({PullKind.ACKED, PullKind.RESET, PullKind.CUT, *STATES})
OUTCOMES = {
    PullKind.ACKED: "acked",
    PullKind.RETRY: "retried",
    PullKind.STOPPED: "stopped",
    PullKind.DEAD: "dead",
    PullKind.EXPIRED: "expired",
    PullKind.FILTERED: "filtered",
    PullKind.SKIPPED: "skipped",
    PullKind.RETURNED: "returned",
    PullKind.LOST: "lost",
    PullKind.KILLED: "lost",
}


Recorder = Callable[[PullRecord, Callable[[int | None], None] | None], None]
"""Writes a record soon; the callback hears where it lies, or that it could not be written."""
OnSettled = Callable[[ConsumerGroup], None]
"""Hears of a group with pending confirms whenever rows of it were settled, or it is deleted."""


class ConsumerGroups:
    """All groups, found by topic and name."""

    def __init__(
        self,
        *,
        clock: Clock,
        record: Recorder,
        on_settled: OnSettled,
        groups_max: int = GROUPS_MAX,
    ) -> None:
        self._groups_max = groups_max
        self._clock = clock
        self._record = record
        self._on_settled = on_settled
        self._failure_cache = FailureCache()
        self.by_topic: dict[int, dict[str, ConsumerGroup]] = {}
        """By topic id, then by name; for looking only."""
        self._wakes: list[tuple[int, int, ConsumerGroup]] = []
        self._wake_numbers = count()  # Of two for one moment the first comes first.
        self._lease = 0
        self._ticket = 0

    # -- finding

    def find(self, topic_id: int, name: str) -> ConsumerGroup | None:
        return self.by_topic.get(topic_id, {}).get(name)

    def get(self, topic_id: int, topic: str, name: str) -> ConsumerGroup:
        group = self.find(topic_id, name)
        if group is None:
            raise GroupNotFound(
                f"topic {topic!r} has no group {name!r}; "
                f"make it with 'tern group create {topic} {name}', or by consuming with it"
            )
        return group

    def check_room(self) -> None:
        """May there be one more? Raises `OverLimit`."""
        count = sum(map(len, self.by_topic.values()))
        if count >= self._groups_max:
            raise OverLimit(
                f"this broker has {count} consumer groups, and groups_max is {self._groups_max}; "
                "delete some ('tern group delete'), or raise it"
            )

    def maker(self, use: UserUse | None) -> str:
        """For whom a new group counts; raises `OverLimit` where it has too many."""
        if use is None:
            return ""
        if use.quota.groups_max:
            there = sum(
                group.settings.made_by == use.name and not group.topic.startswith(RESERVED)
                for group in self
            )
            use.check_made("groups", there, use.quota.groups_max)
        return use.name

    def of_topic(self, topic_id: int) -> Iterable[ConsumerGroup]:
        return self.by_topic.get(topic_id, {}).values()

    def __iter__(self) -> Iterator[ConsumerGroup]:
        for groups in self.by_topic.values():
            yield from groups.values()

    def now(self) -> int:
        """The moment, for lanes: milliseconds that only go forward."""
        return int(self._clock.monotonic() * 1000)

    def now_ms(self) -> int:
        """The time of day, for what messages say about themselves."""
        return self._clock.now_ms()

    def new_lease(self, group: ConsumerGroup) -> int:
        """Never used twice; its low bits name the group, so that a late ack finds its lane."""
        self._lease += 1
        return (self._lease << LEASE_GROUP_BITS) | (group.id & LEASE_GROUP_MASK)

    def skip_forgotten(self, epoch: int) -> None:
        """After a start: the numbers of leases that a crash made us forget are not used again,
        also when this life ends before it has written down one of its own."""
        forgotten = LEASES_FORGOTTEN_MAX
        self._lease = max(self._lease + forgotten, epoch * forgotten)

    def given_out(self, lease: int) -> bool:
        """Was there ever a lease of this number? Peers may make them up."""
        return lease >> LEASE_GROUP_BITS <= self._lease

    def new_ticket(self) -> int:
        """A number for a consumer."""
        self._ticket += 1
        return self._ticket

    # -- changing

    def add(self, group: ConsumerGroup) -> None:
        self.by_topic.setdefault(group.topic_id, {})[group.name] = group

    def remove(self, group: ConsumerGroup) -> None:
        group.deleted = True
        named = self.by_topic.get(group.topic_id, {})
        if named.get(group.name) is group:
            del named[group.name]
        if not named:
            self.by_topic.pop(group.topic_id, None)
        if group.pending_confirms:
            self._on_settled(group)

    def write(self, group: ConsumerGroup, changes: Iterable[LaneEvent]) -> None:
        """Note progress; it is written soon."""
        written = list(changes)
        for change in written:
            group.records += 1
            placed = (
                None if change.note is None else partial(self._failure_cache.written, change.note)
            )
            self._record(self.to_record(group, change), placed)
        if group.order is not None:
            group.order.apply(written, group.lane)

    def to_record(self, group: ConsumerGroup, change: LaneEvent) -> PullRecord:
        """Every change passes here on its way to the log."""
        if change.kind in SETTLING:
            group.note(change)
            if group.pending_confirms:
                self._on_settled(group)
        outcome = OUTCOMES.get(change.kind)
        if outcome is not None:
            rows = sum(end - first for first, end, _ in change.ranges)
            group.passed[outcome] = group.passed.get(outcome, 0) + rows
        return PullRecord(
            kind=change.kind,
            group_id=group.id,
            lane_id=group.topic_id,
            at_ms=self._clock.now_ms(),
            session=change.session,
            lease=change.lease,
            argument=change.argument,
            ranges=change.ranges,
            text=change.text,
        )

    def birth_record(self, group: ConsumerGroup) -> PullRecord:
        text = snapshot.birth_text(group.name, group.lane.start)
        return self.to_record(group, LaneEvent(PullKind.GROUP_MADE, (), text=text))

    def death_record(self, group: ConsumerGroup) -> PullRecord:
        return self.to_record(group, LaneEvent(PullKind.GROUP_DELETED, ()))

    def settings_record(self, group: ConsumerGroup, settings: GroupSettings) -> PullRecord:
        text = snapshot.settings_text(settings)
        return self.to_record(group, LaneEvent(PullKind.SETTINGS, (), text=text))

    def snapshot_record(self, group: ConsumerGroup) -> PullRecord:
        group.records = 0
        text = snapshot.save(
            group.lane,
            group=group.name,
            created_at_ms=group.created_at_ms,
            now=self.now(),
            settings=group.settings,
            outcomes=group.outcomes,
        )
        return self.to_record(group, LaneEvent(PullKind.SNAPSHOT, (), text=text))

    def restore(self, group: ConsumerGroup, record: PullRecord) -> None:
        """Back to what a snapshot record says; what came after it is handed out again."""
        now = self.now()
        end = group.lane.end
        state, group.lane = snapshot.load(record.text, now=now, waited_ms=0, grace_until=now)
        group.outcomes = state.kept_outcomes()
        group.lane.grow(end)
        if group.order is not None:
            group.order = KeyOrder(group.lane)
        self.schedule(group)

    # -- waking

    def schedule(self, group: ConsumerGroup) -> None:
        """Make sure that `due` names this group when its lane has something to do."""
        wake_at = group.lane.wake_at()
        if wake_at is not None:
            self.wake(group, wake_at)

    def wake(self, group: ConsumerGroup, moment: int) -> None:
        """Schedule for one moment that is known, without looking at every lease."""
        if group.wakes is None or moment < group.wakes:
            group.wakes = moment
            heappush(self._wakes, (moment, next(self._wake_numbers), group))

    def is_due(self, now: int) -> bool:
        """Is there a group that `due` may name?"""
        return bool(self._wakes) and self._wakes[0][0] <= now

    def due(self, now: int) -> Iterator[ConsumerGroup]:
        """Groups whose lanes have something to do."""
        while self._wakes and self._wakes[0][0] <= now:
            moment, _, group = heappop(self._wakes)
            if group.deleted or group.wakes != moment:
                continue
            group.wakes = None
            yield group

    # -- at start

    def replay(
        self, records: Iterable[tuple[int, PullRecord]], *, topics: dict[int, str], grace_ms: int
    ) -> dict[tuple[int, int], int]:
        """Rebuild every group; return where the newest snapshot of each lies."""
        now, now_ms = self.now(), self._clock.now_ms()
        by_id: dict[tuple[int, int], ConsumerGroup] = {}
        snapshots: dict[tuple[int, int], int] = {}
        for offset, record in records:
            key = (record.group_id, record.lane_id)
            self._lease = max(self._lease, record.lease >> LEASE_GROUP_BITS)
            waited_ms = now_ms - record.at_ms
            if record.kind is PullKind.GROUP_MADE:
                birth = snapshot.read_birth(record.text)
                lane = Lane(birth.start)
                by_id[key] = _made(record, birth.group, record.at_ms, lane, topics)
                snapshots[key] = offset
            elif record.kind is PullKind.SNAPSHOT:
                state, lane = snapshot.load(
                    record.text, now=now, waited_ms=waited_ms, grace_until=now + grace_ms
                )
                newest = max(lane.leases, default=0)
                self._lease = max(self._lease, newest >> LEASE_GROUP_BITS)
                by_id[key] = _made(record, state.group, state.created_at_ms, lane, topics, state)
                snapshots[key] = offset
            elif record.kind is PullKind.GROUP_DELETED:
                by_id.pop(key, None)
                snapshots.pop(key, None)
            elif record.kind is PullKind.SETTINGS and key in by_id:
                by_id[key].replay_settings(snapshot.read_settings(record.text))
            elif record.kind in LANE_KINDS and key in by_id:
                change = LaneEvent(
                    record.kind,
                    record.ranges,
                    record.lease,
                    record.session,
                    record.argument,
                    record.text,
                )
                group = by_id[key]
                apply(
                    group.lane,
                    change,
                    now=now,
                    waited_ms=waited_ms,
                    grace_until=now + grace_ms,
                    offset=offset,
                )
                group.note(change)
                group.records += 1
        for key, group in by_id.items():
            if not group.topic:
                log.info("group of a deleted topic dropped", group=group.name)
                self._record(self.death_record(group), None)
                snapshots.pop(key, None)
                continue
            self.add(group)
        return snapshots


def _made(
    record: PullRecord,
    name: str,
    created_at_ms: int,
    lane: Lane,
    topics: dict[int, str],
    state: snapshot.LaneState | None = None,
) -> ConsumerGroup:
    """The group that a record is of; without a name of its topic where that is deleted."""
    topic = topics.get(record.lane_id, "")
    return ConsumerGroup(
        record.group_id,
        name,
        record.lane_id,
        topic,
        created_at_ms,
        lane,
        beside=topics.get(lane_owner(topic), ""),
        settings=GroupSettings() if state is None else state.settings,
        outcomes=Outcomes() if state is None else state.kept_outcomes(),
    )
