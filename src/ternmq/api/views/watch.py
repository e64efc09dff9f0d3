"""The watch: looks at the cluster once a second, for everybody who looks at it.

One task asks the servers and makes a `Snapshot`; pages, streams and the API show that one, however
many tabs there are. A look must never hurt: it asks for some of the groups and topics only
(`sampled_figures.py`: the worst ones, those that pages show, and the next few in a round over all),
and the watch rests twenty times as long as a look took, and hardly ever looks while nobody watches.

Who does not answer is named in the snapshot. If nobody does, the last snapshot stays and says so.
The watch never ends by an error: the next look may succeed.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ternmq.api.views.sampled_figures import GroupKey, SampledGroups, SampledTopics
from ternmq.api.views.snapshot import (
    FlowPoint,
    GroupView,
    Snapshot,
    TopicView,
    growth,
    sender_rates,
    sent_by,
)
from ternmq.client.admin.broker_members import BrokerState
from ternmq.client.client import Client
from ternmq.client.transport.fan_out import Missing
from ternmq.core.clock import Clock
from ternmq.core.errors import Closed, TernError
from ternmq.core.log import get_logger
from ternmq.core.units import HOUR_MS
from ternmq.wire.messages.delays import DelayCounts
from ternmq.wire.messages.stats import Status
from ternmq.wire.messages.topics import Topic

EVERY_S = 1.0
REST_SHARE = 20
"""A look may take so small a part of the time,"""
REST_MAX_S = 3.0
"""but brokers spread what it costs them, so it does not rest longer than that."""
IDLE_AFTER_S = 30.0
IDLE_EVERY_S = 10.0
SLOW_EVERY_S = 3.0
"""Servers, topics and delayed messages change seldom."""
FLOW_POINTS = 300
TREND_POINTS = 60
SLOW_SHARE = 50
"""Looking at them may take so small a part of the time."""
TRENDS_MAX = 2_000
"""Groups and topics whose last looks are remembered."""

log = get_logger()


class LooksShared(Protocol):
    """A watch, or one narrowed."""

    @property
    def snapshot(self) -> Snapshot: ...

    def wanted(self) -> None: ...

    def shows(self, groups: Iterable[GroupView] = (), topics: Iterable[TopicView] = ()) -> None: ...

    async def after(self, number: int) -> Snapshot: ...

    async def fresh(self) -> Snapshot: ...


class Watch:
    """`snapshot` is the last look; `after` waits for the next one."""

    def __init__(self, mq: Client, clock: Clock) -> None:
        self._mq = mq
        self._clock = clock
        self.snapshot = Snapshot(at_ms=clock.now_ms(), number=0, trouble="not asked yet")
        self._flow: deque[FlowPoint] = deque(maxlen=FLOW_POINTS)
        self._backlogs: dict[GroupKey, deque[tuple[float, int]]] = {}
        self._rates: dict[str, deque[float]] = {}
        self._groups = SampledGroups()
        self._topics = SampledTopics()
        self._slow = SlowFacts()
        self._slow_again_at = float("-inf")
        self._wanted_at = clock.monotonic()
        self._looked = asyncio.Condition()
        self._wake = asyncio.Event()
        self._stopped = False

    def wanted(self) -> None:
        """A viewer looks at what is seen here."""
        idle = self._idle
        self._wanted_at = self._clock.monotonic()
        if idle:
            self._wake.set()

    def shows(self, groups: Iterable[GroupView] = (), topics: Iterable[TopicView] = ()) -> None:
        """A page shows these: they are looked at every time for a while."""
        now = self._clock.monotonic()
        self._groups.pin(((view.topic, view.name) for view in groups), now)
        self._topics.pin((view.name for view in topics), now)

    async def after(self, number: int) -> Snapshot:
        """The first snapshot with a higher number; raises `Closed` when there will be none."""
        async with self._looked:
            await self._looked.wait_for(lambda: self.snapshot.number > number or self._stopped)
        if self._stopped:
            raise Closed("the console is stopping")
        return self.snapshot

    async def stop(self) -> None:
        """Let everybody go who waits for the next look."""
        self._stopped = True
        async with self._looked:
            self._looked.notify_all()

    async def fresh(self) -> Snapshot:
        """The latest one; waits for the very first, and for one of this minute after a rest."""
        stale = self._idle or not self.snapshot.number
        self.wanted()
        return await self.after(self.snapshot.number) if stale else self.snapshot

    async def run(self) -> None:
        """Look, rest, for ever."""
        while True:
            began = self._clock.monotonic()
            await self.look()
            took = self._clock.monotonic() - began
            self._wake.clear()
            pause = IDLE_EVERY_S if self._idle else EVERY_S
            rest = max(pause - took, min(took * REST_SHARE, REST_MAX_S), 0.0)
            try:
                async with asyncio.timeout(rest):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def look(self) -> None:
        """Once; what goes wrong is in the snapshot."""
        try:
            seen = await self._look()
        except TernError as error:
            seen = self._again(error.message)
        except Exception as bug:
            log.error("a look failed by a bug", exc_info=bug)
            seen = self._again("a bug of the console; its log says more")
        async with self._looked:
            self.snapshot = seen
            self._looked.notify_all()

    @property
    def _idle(self) -> bool:
        return self._clock.monotonic() - self._wanted_at > IDLE_AFTER_S

    def _again(self, trouble: str) -> Snapshot:
        before = self.snapshot
        return replace(before, number=before.number + 1, trouble=trouble)

    async def _look(self) -> Snapshot:
        now = self._clock.monotonic()
        if now >= self._slow_again_at:
            self._slow = await self._look_slowly()
            took = self._clock.monotonic() - now
            self._slow_again_at = now + max(SLOW_EVERY_S, took * SLOW_SHARE)
        admin = self._mq.admin.tolerant()
        for key in await self._groups.look(admin, now):
            self._groups.views[key] = self._with_trend(self._groups.views[key], now)
        for name in await self._topics.look(admin, self._slow.topics, now):
            self._topics.views[name] = self._with_rates(self._topics.views[name])
        views, topics = dict(sorted(self._groups.views.items())), dict(self._topics.views)
        self._forget(views, topics)
        at_ms = self._clock.now_ms()
        sums = self._groups.sums
        self._flow.append(FlowPoint(at_ms=at_ms, rate_in=sums.rate_in, rate_out=sums.rate_out))
        return Snapshot(
            at_ms=at_ms,
            number=self.snapshot.number + 1,
            topics=topics,
            groups=views,
            sums=sums,
            servers=self._slow.servers,
            statuses=self._slow.statuses,
            senders=self._slow.senders,
            delayed=self._slow.delayed,
            horizon=self._slow.horizon,
            hour_ms=self._slow.hour_ms,
            flow=tuple(self._flow),
            missing={**self._slow.missing, **admin.missing},
        )

    async def _look_slowly(self) -> "SlowFacts":
        admin = self._mq.admin.tolerant()
        topics = await admin.topics()
        brokers, delays = await asyncio.gather(admin.brokers(), admin.brokers("delay"))
        statuses = await admin.broker_status()
        sent, at = sent_by(await admin.senders()), self._clock.monotonic()
        missing = dict(admin.missing)
        delayed, counts = 0, DelayCounts(hours=[], hour_ms=HOUR_MS)
        if delays:
            try:
                delayed = sum(line.pending for line in await admin.delays.ledger())
                counts = await admin.delays.counts()
            except TernError as error:
                missing["delay servers"] = error.message
        return SlowFacts(
            topics=topics,
            servers=[*brokers, *delays],
            statuses=statuses,
            delayed=delayed,
            horizon=counts.hours,
            hour_ms=counts.hour_ms,
            sent=sent,
            senders=sender_rates(self._slow.sent, sent, at - self._slow.at),
            at=at,
            missing=missing,
        )

    def _with_trend(self, view: GroupView, now: float) -> GroupView:
        key = view.topic, view.name
        seen = self._backlogs.get(key)
        if seen is None:
            if len(self._backlogs) >= TRENDS_MAX:
                return view
            seen = self._backlogs[key] = deque(maxlen=TREND_POINTS)
        seen.append((now, view.ready))
        recent = [point for point in seen if now - point[0] <= IDLE_AFTER_S]
        return replace(view, backlogs=[ready for _, ready in seen], growth=growth(recent))

    def _with_rates(self, view: TopicView) -> TopicView:
        seen = self._rates.get(view.name)
        if seen is None:
            if len(self._rates) >= TRENDS_MAX:
                return view
            seen = self._rates[view.name] = deque(maxlen=TREND_POINTS)
        seen.append(view.rate_in)
        return replace(view, rates=tuple(seen))

    def _forget(self, groups: dict[GroupKey, GroupView], topics: dict[str, TopicView]) -> None:
        """What was deleted makes room."""
        for group in [key for key in self._backlogs if key not in groups]:
            del self._backlogs[group]
        for topic in [name for name in self._rates if name not in topics]:
            del self._rates[topic]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowFacts:
    """What is asked less often; nothing, before the first look."""

    topics: Sequence[Topic] = ()
    servers: Sequence[BrokerState] = ()
    statuses: Sequence[Status] = ()
    delayed: int = 0
    horizon: Sequence[tuple[int, int]] = ()
    hour_ms: int = HOUR_MS
    sent: Mapping[tuple[str, str], int] = field(default_factory=dict)
    senders: Mapping[tuple[str, str], float] = field(default_factory=dict)
    at: float = 0.0
    missing: Missing = field(default_factory=dict)
