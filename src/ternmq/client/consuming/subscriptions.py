"""One subscription per broker group that a consumer has joined; also for groups added later.

At the start every broker group on the routes is joined; that at least one lets the consumer in is
enough, the others are tried again in the background. A broker group that is added later is joined
when the routes tell, from its earliest message: the consumer was there before it, and with what was
set for the group elsewhere. One that leaves
the routes keeps its subscription, which waits for it to come back.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from ternmq.client.admin.topics import topic_exists
from ternmq.client.consuming.group_settings import carry_settings, declare_settings
from ternmq.client.consuming.subscription import Subscription
from ternmq.client.consuming.subscription_plan import DeliverySink, SubscriptionPlan
from ternmq.client.transport.attempts import Attempts
from ternmq.client.transport.cluster import Cluster
from ternmq.core.errors import DiskFailed, DiskFull, TernError, TopicNotFound
from ternmq.core.lifecycle import Background
from ternmq.core.log import get_logger
from ternmq.wire.messages.groups import Start

START_S = 60.0
"""As long as a sender tries (`delivery_timeout`)."""

LOOKED_AT_MAX = 16
"""Of more topics a consumer does not ask whether they are there, unless it must."""
LOOKED_AT_S = 1.0
AWAY_S = 10.0
"""A broker group without a master for so long is told of."""

log = get_logger()


class Subscriptions:
    """The subscriptions of one consumer, on one event loop."""

    def __init__(
        self,
        cluster: Cluster,
        plan: SubscriptionPlan,
        sink: DeliverySink,
        now: Callable[[], float],
    ) -> None:
        """`now`: the clock of leases."""
        self._now = now
        self._cluster = cluster
        self._plan = plan
        self._sink = sink
        self._joined: dict[str, Subscription] = {}
        self._joining: dict[str, asyncio.Task[None]] = {}
        self._resting = False
        self._declared: set[str] = set()
        """Topics whose group the code has set, as the log says."""
        self._away: dict[str, asyncio.TimerHandle] = {}
        """Broker groups that nobody leads; to be told of where that lasts."""

    def __iter__(self) -> Iterator[Subscription]:
        return iter(list(self._joined.values()))

    async def start(self) -> None:
        """Join everywhere; raises what keeps the consumer out. While broker groups are known and
        none lets it in, it waits as a running one would, for a time; not for a disk, which nobody
        but a person makes room on."""
        await self._look_at_topics()
        attempts = Attempts(max(START_S, self._plan.timeout))
        while True:
            try:
                await self._join_some()
                break
            except TernError as error:
                known = bool(self._cluster.masters() or self._cluster.away("realtime"))
                waits = error.retryable and not isinstance(error, DiskFull | DiskFailed)
                if not (waits and known):
                    raise
                if not attempts.failures:
                    log.warning("cannot join yet", group=self._plan.group, reason=error.message)
                await attempts.failed(error)
        self._cluster.on_routes.append(self._look)
        self._look()

    async def _look_at_topics(self) -> None:
        """A misspelt topic is an error where the code says `create=False`, else a line in the log:
        nothing would ever come, and nobody would know why."""
        plan = self._plan
        if plan.create and len(plan.topics) > LOOKED_AT_MAX:
            return
        for topic in plan.topics:
            try:
                async with asyncio.timeout(LOOKED_AT_S if plan.create else None):
                    if await topic_exists(self._cluster, topic):
                        continue
            except (TernError, TimeoutError):
                if plan.create:
                    return  # Joining says what is wrong.
                raise
            if not plan.create:
                raise TopicNotFound(
                    f"there is no topic {topic!r}, and create=False; 'tern topic list' shows what "
                    "there is",
                    topic=topic,
                )
            log.warning(
                "nobody has sent to this topic yet: it is made now; is the name right?",
                topic=topic,
                group=plan.group,
            )

    async def _join_some(self) -> None:
        """At least one; raises why there is none."""
        late: TernError | None = None
        for group in await self._cluster.some_masters():
            try:
                await self._join(group, self._plan)
            except TernError as error:
                if not error.retryable:
                    raise
                late = error
        if late is not None and not self._joined:
            raise late

    def set_prefetch(self, prefetch: int) -> None:
        """At every broker group, and at those that come later."""
        self._plan = replace(self._plan, prefetch=prefetch)
        for subscription in self:
            subscription.follow(self._plan)

    def rest(self) -> None:
        """Ask for no more."""
        self._resting = True
        for subscription in self:
            subscription.rest()

    async def stop(self) -> None:
        """Leave everywhere."""
        if self._look in self._cluster.on_routes:
            self._cluster.on_routes.remove(self._look)
        for timer in self._away.values():
            timer.cancel()
        tasks = list(self._joining.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.gather(*(each.stop() for each in self))

    def _look(self) -> None:
        """Is there a broker group that we have not joined, or one that nobody leads any more?"""
        self._watch_away()
        later = replace(self._plan, start=Start(at="earliest"), start_given=False)
        for group in self._cluster.masters():
            if group not in self._joined and group not in self._joining and not self._resting:
                joining = self._keep_joining(group, later)
                task = Background("a consumer", self._sink.failed).task(joining, name="tern-join")
                self._joining[group] = task
                task.add_done_callback(partial(self._came, group))

    def _watch_away(self) -> None:
        away = [group for group in self._joined if group in self._cluster.away("realtime")]
        for group in [group for group in self._away if group not in away]:
            self._away.pop(group).cancel()
        for group in away:
            if group not in self._away:
                loop = asyncio.get_running_loop()
                self._away[group] = loop.call_later(AWAY_S, self._tell_away, group)

    def _tell_away(self, group: str) -> None:
        """A failover is over by now: a person has to do something."""
        log.warning(
            "nobody leads a broker group: its messages wait; `tern broker promote` lets a replica "
            "lead, and read(group=..., from_='replica') shows them meanwhile",
            broker_group=group,
            group=self._plan.group,
        )

    def _came(self, group: str, _task: "asyncio.Task[None]") -> None:
        self._joining.pop(group, None)

    async def _keep_joining(self, group: str, plan: SubscriptionPlan) -> None:
        attempts = Attempts()
        while True:
            try:
                await self._carry(group)
                await self._join(group, plan)
            except TernError as error:
                if not error.retryable:
                    self._sink.failed(error)
                    return
                await attempts.wait()
            else:
                log.info("joined a broker group", broker_group=group, group=plan.group)
                return

    async def _carry(self, group: str) -> None:
        """What was set for our group holds there too, before we are handed anything."""
        for topic in self._plan.topics:
            try:
                named = (topic, self._plan.group)
                await carry_settings(self._cluster, named, group, list(self._joined))
            except TernError as error:
                if error.retryable:
                    raise  # What is wrong for good is told by joining.

    async def _join(self, group: str, plan: SubscriptionPlan) -> None:
        broker, reader = self._cluster.broker(group), self._cluster.reader(group)
        subscription = Subscription(broker, plan, self._sink, reader=reader, now=self._now)
        try:
            there = await declare_settings(self._cluster, group, plan, self._declared)
            await subscription.start()
            if not there:
                await declare_settings(self._cluster, group, plan, self._declared)
        except BaseException:
            await subscription.stop()
            raise
        self._joined[group] = subscription
