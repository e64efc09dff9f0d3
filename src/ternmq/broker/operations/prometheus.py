"""The figures of a broker for Prometheus, worked out for each scrape (R25, J13).

Everything comes from state that is there anyway; nothing is counted for single messages. A look
walks over topics and groups in slices and lets the loop go on in between, so its cost is spread
however many there are. The first `TOPICS_MAX` and `LANES_MAX` have series of their own, the rest
is added up. Ages that are not in memory are read by a thread, at most `DISK_LOOKS_MAX` a look.
"""

import asyncio
from dataclasses import dataclass
from typing import Literal

from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.groups import OUTCOMES, ConsumerGroups
from ternmq.broker.groups.lane import Lane
from ternmq.broker.limits.traffic import REASONS, TrafficCounters
from ternmq.broker.operations.review_queue import ReviewQueue
from ternmq.broker.operations.stats import BrokerStats
from ternmq.discovery.directory import Directory
from ternmq.discovery.hidden_topics import DEAD_PREFIX, RESERVED
from ternmq.metrics.recent_histogram import RecentHistogram
from ternmq.metrics.samples import Samples
from ternmq.metrics.table import LANES_MAX, LEDGER_STATES, OTHER, TIMED_LANES_MAX, TOPICS_MAX
from ternmq.storage.consume.consume_log import ConsumeLog
from ternmq.wire.messages.groups import HalfLine
from ternmq.wire.messages.topics import Topic

SLICE = 10
"""Topics or groups looked at in one turn of the loop,"""
PAUSE_S = 0.001
"""and then others have it for so long, where there are more than"""
SMALL = 500
DISK_LOOKS_MAX = 64

Trouble = Literal["store_failed", "disk_full", "read_only"]
TROUBLES: tuple[Trouble, ...] = ("store_failed", "disk_full", "read_only")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scraper:
    """Adds what a broker knows about its topics and groups."""

    directory: Directory
    groups: ConsumerGroups
    consume: ConsumeLog
    traffic: TrafficCounters
    stats: BrokerStats
    review_queue: ReviewQueue

    async def topics(self, out: Samples) -> None:
        """Of every topic of people's; dead letters by their group."""
        count = letters = 0
        topics = self.directory.topics()
        pause_s = pause_for(len(topics))
        for number, topic in enumerate(topics):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(pause_s)
            if topic.name.startswith(DEAD_PREFIX):
                letters += 1
                group = topic.name.removeprefix(DEAD_PREFIX) if letters <= LANES_MAX else OTHER
                still = self.review_queue.open_rows(topic, self.consume.bounds(topic.id))
                out.add("tern_group_dead_letters", still, group)
            elif not topic.name.startswith(RESERVED):
                count += 1
                self._topic(out, topic, topic.name if count <= TOPICS_MAX else OTHER)
        out.add("tern_broker_topics", count)

    def _topic(self, out: Samples, topic: Topic, label: str) -> None:
        first, end = self.consume.bounds(topic.id)
        sent = self.traffic.rates(self.traffic.sent, topic.id)
        out.add("tern_topic_stored_messages_total", end, label)
        out.add("tern_topic_stored_bytes_total", sent.bytes, label)
        out.add("tern_topic_kept_messages", end - first, label)
        out.add("tern_topic_publish_messages_per_second", sent.messages_10s, label)
        out.add("tern_topic_publish_bytes_per_second", sent.bytes_10s, label)
        out.add("tern_topic_put_aside_messages", self.stats.put_aside(topic.name), label)
        refused = self.traffic.refused.get(topic.id, {})
        for reason in REASONS:
            out.add("tern_topic_refused_messages_total", refused.get(reason, 0), label, reason)

    def halves(self, out: Samples, lines: list[HalfLine]) -> None:
        """Only topics that have any; a bound of its own, since most have none."""
        for number, line in enumerate(lines):
            label = line.topic if number < TOPICS_MAX else OTHER
            out.add("tern_topic_half_messages", line.open, label, "open")
            out.add("tern_topic_half_messages", line.dropped, label, "dropped")

    async def lanes(self, out: Samples) -> None:
        """Of every group on every topic, and of its private lane."""
        lanes = groups = looks = 0
        every, times = list(self.groups), LaneHistograms()
        pause_s = pause_for(len(every))
        for number, group in enumerate(every):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(pause_s)
            if group.deleted or group.name.startswith(RESERVED):
                continue
            lanes += 1
            groups += not group.beside
            lane = "private" if group.beside else "topic"
            labels = (group.beside or group.topic, group.name, lane)
            if lanes > LANES_MAX:
                labels = (OTHER, OTHER, lane)
            self._lane(out, group, labels)
            times.add(out, group, labels)
            age = self.stats.age_ms_now(group)
            if age is None and looks < DISK_LOOKS_MAX:
                looks += 1
                age = await self.stats.age_ms(group)
            if age is not None and age >= 0:
                out.highest("tern_group_backlog_seconds", age / 1000, *labels)
        times.add_others(out)
        out.add("tern_broker_groups", groups)
        out.add("tern_broker_alarms", self.stats.alarms, "backlog")

    def _lane(self, out: Samples, group: ConsumerGroup, labels: tuple[str, str, str]) -> None:
        line = group.lane.ledger()
        for state in LEDGER_STATES:
            out.add("tern_group_messages", getattr(line, state), *labels, state)
        out.add("tern_group_backlog_messages", line.ready, *labels)
        out.add("tern_group_unacked_messages", line.in_flight + line.waiting_retry, *labels)
        meter = self.traffic.delivered.get(group.id)
        out.add("tern_group_delivered_messages_total", meter.rows if meter else 0, *labels)
        out.add("tern_group_delivered_bytes_total", meter.size if meter else 0, *labels)
        for outcome in dict.fromkeys(OUTCOMES.values()):
            out.add("tern_group_outcomes_total", group.passed.get(outcome, 0), *labels, outcome)
        out.add("tern_group_members", len(group.consumers), *labels)
        out.add("tern_group_lane_ranges", lane_ranges(group.lane), *labels)
        out.add("tern_group_alarm", self.stats.alarmed(group), *labels)
        out.add("tern_group_held_back", bool(self.stats.held_back(group)), *labels)


class LaneHistograms:
    """How long rows of lanes waited and were worked on: the first lanes by name, the rest added up.
    Lanes of which nothing is known have none."""

    def __init__(self) -> None:
        self._lanes = 0
        self._others: dict[tuple[str, str], RecentHistogram] = {}

    def add(self, out: Samples, group: ConsumerGroup, labels: tuple[str, str, str]) -> None:
        seen = {
            "tern_group_wait_seconds": group.wait_times,
            "tern_group_handle_seconds": group.handle_times,
        }
        self._lanes += any(each is not None for each in seen.values())
        for name, times in seen.items():
            if times is None:
                continue
            if self._lanes <= TIMED_LANES_MAX and labels[0] != OTHER:
                out.histogram(name, times, *labels)
            else:
                self._others.setdefault((name, labels[2]), RecentHistogram()).add(times)

    def add_others(self, out: Samples) -> None:
        for (name, lane), times in self._others.items():
            out.histogram(name, times, OTHER, OTHER, lane)


def pause_for(count: int) -> float:
    """Of few there is nothing to spread."""
    return PAUSE_S if count > SMALL else 0


def lane_ranges(lane: Lane) -> int:
    """How many ranges say where the rows of a lane are."""
    leased = sum(len(lease.rows) for lease in lane.leases.values())
    return len(lane.done) + len(lane.returned) + len(lane.waiting) + len(lane.moving) + leased
