"""How topics and groups are doing: rates, backlog, what was refused, alarms (R25).

Everything is worked out when somebody asks, from counters that are there anyway. The backlog in
seconds is the age of the oldest message that is ready; the consume log knows when it was stored,
and where that is not in memory a thread reads it. Once a second the backlog of groups that have an
alarm is compared with it; crossing it is one line in the log, and one when it is over.
"""

import asyncio

from ternmq.broker.delivery.pull import PullHandler
from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.limits.slices import Slices
from ternmq.broker.limits.traffic import TrafficCounters
from ternmq.broker.log.fetch import Fetcher
from ternmq.broker.operations.admin import SLICE, both_lanes, group_page
from ternmq.broker.operations.review_queue import ReviewQueue
from ternmq.broker.topics import TopicNames
from ternmq.core.log import get_logger
from ternmq.discovery.hidden_topics import refused_topic
from ternmq.metrics.recent_histogram import ROW_BOUNDS_S, RecentHistogram
from ternmq.storage.consume.consume_log import ConsumeLog
from ternmq.storage.consume.entry import ConsumeEntry
from ternmq.wire.inspection.times import GroupTimes, LaneTimes, TimeCounts
from ternmq.wire.messages.groups import GroupFind, GroupNamed
from ternmq.wire.messages.stats import (
    AllGroupFigures,
    AllTopicFigures,
    GroupFigures,
    TopicFigures,
    TopicFiguresFind,
)
from ternmq.wire.messages.topics import asked_once

log = get_logger()

ALARM_EVERY_S = 1.0
ALARM_OVER = 0.9
"""An alarm is over when the backlog is below that part of it, so that it does not flicker."""


class BrokerStats:
    """The FIGURES commands and the backlog alarm."""

    def __init__(
        self,
        *,
        groups: ConsumerGroups,
        topics: TopicNames,
        consume: ConsumeLog,
        fetcher: Fetcher,
        pull_handler: PullHandler,
        traffic: TrafficCounters,
        review_queue: ReviewQueue,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._consume = consume
        self._fetcher = fetcher
        self._pull_handler = pull_handler
        self._traffic = traffic
        self._review_queue = review_queue
        self._alarmed: set[ConsumerGroup] = set()
        self._slices = Slices(SLICE)

    async def topics(self, request: TopicFiguresFind) -> AllTopicFigures:
        return AllTopicFigures(
            topics=await self._slices.make(asked_once(request.topics), self.topic)
        )

    def topic(self, name: str) -> TopicFigures:
        topic = self._topics.get(name)
        refused = self._traffic.refused.get(topic.id, {})
        return TopicFigures(
            topic=name,
            sent=self._traffic.rates(self._traffic.sent, topic.id),
            refused={reason: refused[reason] for reason in sorted(refused)},
            put_aside=self.put_aside(name),
        )

    def put_aside(self, topic: str) -> int:
        """Messages over the topic's limit that nobody has handled yet."""
        aside = self._topics.find(refused_topic(topic))
        return (
            0
            if aside is None
            else self._review_queue.open_rows(aside, self._consume.bounds(aside.id))
        )

    async def groups(self, request: GroupFind) -> AllGroupFigures:
        found, following = group_page(self._groups, self._topics, request)
        ages = await self._slices.make(found, self.age_ms_now)
        for number, group in enumerate(found):
            if ages[number] is None:
                ages[number] = await self.age_ms(group)
        aged = list(zip(found, ages, strict=True))
        return AllGroupFigures(
            groups=await self._slices.make(
                aged, lambda each: self.group_now(each[0], each[1] or 0)
            ),
            following=following,
        )

    def times(self, request: GroupNamed) -> GroupTimes:
        """How long messages of a group waited, and were worked on."""
        topic = self._topics.get(request.topic)
        now = self._groups.now() / 1000
        lanes = both_lanes(self._groups, self._topics, topic, request.group)
        return GroupTimes(
            bounds_s=list(ROW_BOUNDS_S),
            lanes=[
                LaneTimes(
                    lane="private" if lane.beside else "topic",
                    wait=time_counts(lane.wait_times, now),
                    handle=time_counts(lane.handle_times, now),
                )
                for lane in lanes
            ],
        )

    def group_now(self, group: ConsumerGroup, age_ms: int) -> GroupFigures:
        """The figures of a group whose oldest ready message is so old."""
        return GroupFigures(
            topic=group.beside or group.topic,
            group=group.name,
            lane="private" if group.beside else "topic",
            backlog=group.lane.ready(),
            backlog_ms=age_ms,
            delivered=self._traffic.rates(self._traffic.delivered, group.id),
            alarm=group in self._alarmed,
            held_back=self.held_back(group),
        )

    def age_ms_now(self, group: ConsumerGroup) -> int | None:
        """How old the oldest ready message is; None where that needs the disk."""
        sequence = oldest_ready(group)
        if sequence is None:
            return 0
        entries = self._consume.entries_nowait(group.topic_id, sequence, rows_max=1, size_max=1)
        return None if entries is None else self._since(entries)

    def alarmed(self, group: ConsumerGroup) -> bool:
        return group in self._alarmed

    @property
    def alarms(self) -> int:
        """Groups over their backlog alarm."""
        return len(self._alarmed)

    async def age_ms(self, group: ConsumerGroup) -> int:
        age = self.age_ms_now(group)
        sequence = oldest_ready(group)
        if age is not None or sequence is None:
            return age or 0
        return self._since(
            await self._fetcher.run(
                lambda: self._consume.entries(group.topic_id, sequence, rows_max=1, size_max=1)
            )
        )

    def _since(self, entries: list[ConsumeEntry]) -> int:
        if not entries:
            return -1
        return max(0, self._groups.now_ms() - entries[0].stored_at_ms)

    def held_back(self, group: ConsumerGroup) -> str:
        if group.settings.paused:
            return "the group is paused"
        if group.halted:
            return "consuming the topic is paused"
        if group.full and group.waiting_pulls:
            return "too many messages are in flight"
        return "a limit is used up" if self._pull_handler.limited(group) else ""

    async def run_alarms(self) -> None:
        """Compare backlogs with their alarms, forever."""
        while True:
            await asyncio.sleep(ALARM_EVERY_S)
            self.look_for_alarms()

    def look_for_alarms(self) -> None:
        for group in [g for g in self._alarmed if g.deleted]:
            self._alarmed.discard(group)
        for group in self._groups:
            alarm = group.settings.backlog_alarm
            ready = group.lane.ready() if alarm else 0
            if alarm and ready > alarm and group not in self._alarmed:
                self._alarmed.add(group)
                log.warning(
                    "backlog alarm", topic=group.topic, group=group.name, backlog=ready, alarm=alarm
                )
            elif group in self._alarmed and ready < max(1, alarm * ALARM_OVER):
                self._alarmed.discard(group)
                log.info(
                    "backlog alarm is over", topic=group.topic, group=group.name, backlog=ready
                )


def oldest_ready(group: ConsumerGroup) -> int | None:
    """The lowest sequence that can be handed out now."""
    lane = group.lane
    for first, _, _ in lane.returned:
        return min(first, lane.next)
    return lane.next if lane.next < lane.end else None


def time_counts(seen: RecentHistogram | None, now: float) -> TimeCounts:
    if seen is None:
        return TimeCounts()
    return TimeCounts(counts=seen.counts(), total_s=round(seen.total, 3), recent=seen.lately(now))
