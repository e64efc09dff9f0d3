"""A consumer group on a topic, and what waits at it: consumers, pulls, confirmations.

A group has a `Lane` (the state machine of its rows) and around it what lives only while the broker
does: the consumers that are there, requests without an answer yet, the moment to wake up. Values
and small decisions. Never touches a socket, a loop or a file: connections and timers are protocols.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from ternmq.batch.layout import Buffer
from ternmq.batch.selector.filter import Filter
from ternmq.broker.groups.key_order import KeyOrder
from ternmq.broker.groups.lane import Lane
from ternmq.broker.groups.lane_event import LaneEvent
from ternmq.broker.groups.lease import Lease, RetryRule
from ternmq.broker.groups.outcomes import Outcomes
from ternmq.broker.groups.priority import PriorityRanks
from ternmq.core.errors import TernError
from ternmq.metrics.recent_histogram import RecentHistogram
from ternmq.security.access.quota import UserUse
from ternmq.storage.pull.record import PullKind
from ternmq.wire.messages.groups import GroupSettings, LedgerLine
from ternmq.wire.messages.hello import Hello

ORDERED_RETRY = "fixed:1s"


class ClientPeer(Protocol):
    """The connection of a client, as far as groups and what waits at them need it."""

    @property
    def hello(self) -> Hello | None: ...

    @property
    def use(self) -> UserUse | None:
        """What its user has here, where security is on."""

    @property
    def address(self) -> tuple[str, int]: ...

    @property
    def closed(self) -> bool: ...

    def answer(self, command: int, correlation: int, *buffers: Buffer) -> None: ...

    def fail(self, command: int, correlation: int, error: TernError) -> None: ...

    def push(self, command: int, *buffers: Buffer) -> None: ...


class Timer(Protocol):
    """Something that happens later unless it is cancelled."""

    def cancel(self) -> None: ...


@dataclass(slots=True, eq=False)
class ClientState:
    """What a broker keeps of one connection that has, or had, consumers."""

    consumers: dict[int, "ConsumerSession"] = field(default_factory=dict)
    """By subscription number."""
    alone: tuple[Lane, int] | None = None
    """The lease of a suspect that this client tries; it gets nothing else meanwhile."""
    draining: "ConsumerGroup | None" = None
    """Gets nothing until it holds nothing; then it tries a suspect of this group."""


@dataclass(slots=True, eq=False)
class ConsumerSession:
    """A consumer that is there: one JOIN of one connection."""

    id: int
    peer: ClientPeer
    client: ClientState
    session: bytes
    joined_at_ms: int
    groups: list["ConsumerGroup"] = field(default_factory=list)
    turn: int = 0  # Which of its topics is served first next time.
    pulls: int = 0  # Pulls that wait for an answer.
    picks: bool = False  # Reads picked batches.
    detached: bool = False  # What it is handed outlives it.


@dataclass(slots=True, eq=False)
class WaitingPull:
    """A pull without an answer yet."""

    consumer: ConsumerSession
    correlation: int
    rows_max: int
    size_max: int
    cold: bool
    """The consumer can read bytes from a replica."""
    lease_ms: int = 0
    """Of a detached consumer: how long it wants to keep what it gets."""
    key: int = 0
    """Of a detached consumer: what settles what it gets."""
    timer: Timer | None = None
    """While it waits."""
    done: bool = False

    def wait(self, timer: Timer) -> None:
        """No rows yet: it waits until there are some, or until this timer."""
        self.timer = timer


@dataclass(slots=True, eq=False)
class PendingConfirm:
    """A request to confirm rows, without an answer yet."""

    peer: ClientPeer
    correlation: int
    first: int
    end: int
    timer: Timer | None = None
    """While it waits."""

    def wait(self, timer: Timer) -> None:
        """Some rows are open: it waits until they are settled, or until this timer."""
        self.timer = timer


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """One consumer group on one topic."""

    id: int
    name: str
    topic_id: int
    topic: str
    created_at_ms: int
    lane: Lane
    consumers: dict[int, ConsumerSession] = field(default_factory=dict)
    waiting_pulls: deque[WaitingPull] = field(default_factory=deque)
    records: int = 0  # Written since the last snapshot.
    snapshot_after: int = 0  # Scattered rows: not before this moment.
    deleted: bool = False
    beside: str = ""  # A private lane: the topic that it lies beside.
    wakes: int | None = None  # The earliest moment in the wake heap.
    settings: GroupSettings = field(default_factory=GroupSettings)
    filter: Filter | None = None  # Of the consumers that are there.
    unsifted: int = 0  # Rows below may have been handed out by another filter than that.
    order: KeyOrder | None = None  # Where the subscription is ordered.
    outcomes: Outcomes = field(default_factory=Outcomes)
    pending_confirms: dict[int, PendingConfirm] = field(default_factory=dict)
    halted: bool = False  # Consuming its topic is paused.
    full: bool = False  # Somebody waits for room below a bound of what may be in flight.
    ranks: PriorityRanks | None = None  # Where it hands out by priority.
    quiet: ClientState | None = None  # Gets nothing until it is free to try a suspect alone.
    passed: dict[str, int] = field(default_factory=dict)  # Rows by outcome since the start.
    wait_times: RecentHistogram | None = None  # From stored until handed out.
    handle_times: RecentHistogram | None = None  # From handed out until acked.

    def retry_rule(self, explicit_ms: int = -1, chance: float = 0.0) -> RetryRule:
        """Ordered groups retry in place: after a second and without limit unless told (R6)."""
        settings = self.settings
        if self.order is not None:
            policy = ORDERED_RETRY if settings.retry == "default" else settings.retry
            limit, stops = settings.ordered_attempts_max, settings.on_failure == "stop"
            return RetryRule(policy, limit, explicit_ms, chance, stops)
        return RetryRule(settings.retry, settings.attempts_max, explicit_ms, chance)

    def replay_settings(self, settings: GroupSettings) -> None:
        """Settings were changed then: what waited by the old policy waits by the new one (R12)."""
        before, self.settings = self.settings.retry, settings
        if settings.retry != before:
            self.lane.reschedule(self.retry_rule())

    def halt(self, paused: bool) -> None:
        """Consuming its topic is paused, or goes on."""
        self.halted = paused

    def follow(self, public: "ConsumerGroup") -> bool:
        """A private lane does as the group does that it lies beside; were its settings others?"""
        before, self.settings = self.settings, public.settings
        self.halted = public.halted
        return before != public.settings

    def note(self, change: LaneEvent) -> None:
        """A step of the lane was made: remember how rows were settled."""
        if change.kind is PullKind.RESET:
            if self.lane.passed is None:
                self.outcomes.begin(self.lane.start, change.ranges[0][0])
            else:
                self.outcomes.skip(self.lane.passed)
            self.lane.passed = None
        else:
            self.outcomes.note(change)

    def waited(self, seconds: float, rows: int, now: int) -> None:
        """Rows were handed out for the first time, so long after they were stored."""
        if self.wait_times is None:
            self.wait_times = RecentHistogram()
        self.wait_times.observe_at(seconds, rows, now / 1000)

    def handled(self, lease: Lease, rows: int, now: int) -> None:
        """Rows of a lease were acked."""
        if not lease.since:  # Handed out in an earlier life of the broker.
            return
        if self.handle_times is None:
            self.handle_times = RecentHistogram()
        self.handle_times.observe_at((now - lease.since) / 1000, rows, now / 1000)

    def ledger(self) -> LedgerLine:
        line = self.lane.ledger()
        topic, lane = (self.beside, "private") if self.beside else (self.topic, "topic")
        return LedgerLine(topic=topic, group=self.name, lane=lane, **line._asdict())
