"""Old messages go: whole segments by age, size and disk; single topics by their own time (R16).

Every few seconds, off the loop where it waits: topics with a time of their own, dead letters among
them, are trimmed (nobody finds the rows any more; the bytes go with their segment). Then the oldest
segments go, one at a time with a pause between them. One that is being read, or whose messages are
with consumers, is put off for a while; one with messages that a delay server has still to take
stays. With `keep_unread` one that a group still needs stays, and
when the disk is full then, messages are refused instead.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ternmq.broker.config import BrokerConfig
from ternmq.broker.delivery.consumers import Consumers
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.log.commit import Committer
from ternmq.broker.log.fetch import Fetcher
from ternmq.broker.maintenance.copy_forward import CopyForward
from ternmq.broker.operations.review_queue import HANDLED
from ternmq.core.clock import Clock
from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.discovery.directory import Directory
from ternmq.discovery.hidden_topics import DEAD_PREFIX, LATER_PREFIX, REFUSED_PREFIX
from ternmq.storage.files.disk import Disk
from ternmq.storage.log.retention_rules import (
    Moment,
    RetentionRules,
    Segment,
    reason_to_drop,
    used_percent,
)
from ternmq.storage.store import Store
from ternmq.wire.messages.groups import Start
from ternmq.wire.messages.topics import Topic

log = get_logger()

PAUSE_S = 0.1  # Between two files.
PUT_OFF_MAX_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """The operator's settings for retention."""

    rules: RetentionRules
    keep_unread: bool
    dead_letter_keep_ms: int
    interval_s: float
    directory: Path
    """Where the disk is."""


def retention_plan(config: BrokerConfig, directory: Path) -> RetentionPlan:
    rules = RetentionRules(
        age_ms=config.retention_ms,
        size=config.retention_size,
        hour=config.retention_hour,
        warn_percent=config.disk_warn_percent,
        forced_percent=config.disk_forced_percent,
    )
    return RetentionPlan(
        rules=rules,
        keep_unread=config.retention_keep_unread,
        dead_letter_keep_ms=config.dead_letter_keep_ms,
        interval_s=config.retention_interval_ms / 1000,
        directory=directory,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedLog:
    """What retention works on."""

    store: Store
    disk: Disk
    fetcher: Fetcher
    committer: Committer
    taken: dict[int, int]
    """How far delay servers have taken their topics; none has since the start: not at all."""


class Retention:
    """The timer and its steps."""

    def __init__(
        self,
        plan: RetentionPlan,
        stored: RetainedLog,
        *,
        directory: Directory,
        groups: ConsumerGroups,
        consumers: Consumers,
        copy_forward: CopyForward,
        clock: Clock,
    ) -> None:
        self._plan = plan
        self._stored = stored
        self._consume = stored.store.consume
        self._directory = directory
        self._groups = groups
        self._consumers = consumers
        self._copy_forward = copy_forward
        self._clock = clock
        self._put_off: tuple[int, float] = (-1, 0.0)  # Which segment, and since when.
        self._logged = ""

    async def run(self) -> None:
        """Look now and then, forever."""
        while True:
            try:
                await self.trim_topics()
                await self.drop_segments()
            except TernError as error:
                log.warning("nothing more is removed for now", reason=error.message)
            except Exception as bug:  # The next look may work; the broker must not die of it.
                log.error("removing failed by a bug", error=repr(bug))
            await asyncio.sleep(self._plan.interval_s)

    # -- topics with a time of their own

    async def trim_topics(self) -> None:
        now_ms = self._clock.now_ms()
        keeps = self._dead_letter_keeps()
        for topic in self._directory.topics():
            keep_ms = self._keep_ms(topic, keeps)
            if keep_ms > 0:
                await self._trim(topic, now_ms - keep_ms)

    def _keep_ms(self, topic: Topic, keeps: dict[str, int]) -> int:
        """0: as long as everything."""
        if topic.name.startswith(DEAD_PREFIX):
            group = topic.name.removeprefix(DEAD_PREFIX)
            return keeps.get(group, self._plan.dead_letter_keep_ms)
        if topic.name.startswith(REFUSED_PREFIX):
            return self._plan.dead_letter_keep_ms
        return topic.settings.keep_ms

    def _dead_letter_keeps(self) -> dict[str, int]:
        """Of groups that say so themselves; where topics differ, the longest."""
        keeps: dict[str, int] = {}
        for group in self._groups:
            keep_ms = group.settings.dead_letter_keep_ms
            if keep_ms >= 0:
                known = keeps.get(group.name, keep_ms)
                # 0 is longest of all: as long as everything.
                keeps[group.name] = max(known, keep_ms) if known and keep_ms else 0
        return keeps

    async def _trim(self, topic: Topic, before_ms: int) -> None:
        first, _ = self._consume.bounds(topic.id)
        target = self._consume.at_time_nowait(topic.id, before_ms)
        if target is None:
            at_time = partial(self._consume.at_time, topic.id, before_ms)
            target = await self._stored.fetcher.run(at_time)
        if target <= first:
            return
        await self._make_review_group(topic)
        await self._copy_forward.leave({topic.id: target})
        self._consume.trim({topic.id: target})

    async def _make_review_group(self, topic: Topic) -> None:
        """Counts letters that no person handled."""
        if topic.name.startswith((DEAD_PREFIX, REFUSED_PREFIX)):
            await self._consumers.make_group(topic, HANDLED, Start(at="earliest"))

    # -- segments

    async def drop_segments(self) -> int:
        """Remove what has to go; returns how many segments went."""
        gone = 0
        while (sealed := self._consume.sealed()) and await self._drop(sealed[0]):
            gone += 1
            await asyncio.sleep(PAUSE_S)
        return gone

    async def _drop(self, segment: Segment) -> bool:
        stored, plan = self._stored, self._plan
        free, size = await stored.fetcher.run(partial(stored.disk.free, plan.directory))
        log_size = stored.store.messages.safe_offset - stored.store.messages.start_offset
        moment = Moment(self._clock.now_ms(), log_size, used_percent(free, size))
        halves = stored.store.halves
        newest_ms = max(segment.last_stored_at_ms, halves.cross_segment.newest_ms(segment.end))
        aged = segment._replace(last_stored_at_ms=newest_ms)
        reason = reason_to_drop(aged, moment, plan.rules)
        if reason is None:
            return False
        hold = halves.hold_offset()
        if hold is not None and hold < segment.end:
            self._log_once(
                "a segment stays: it has half messages of open transactions ('tern half')"
            )
            return False
        # From here on no commit can reach into it: it takes no more half messages, and has none.
        firsts = await stored.fetcher.run(partial(stored.store.firsts_without, segment))
        if (server := self._untaken(firsts)) is not None:
            self._log_once(f"a segment stays: the delay server {server!r} has not taken all of it")
            return False
        if plan.keep_unread and (group := self._copy_forward.needed_by(firsts)) is not None:
            self._log_once(f"a segment stays: group {group.name} on {group.topic} still needs it")
            return False
        if self._wait_for_readers(segment, firsts):
            return False
        for topic in self._directory.topics():
            if topic.id in firsts and self._consume.bounds(topic.id)[0] < firsts[topic.id]:
                await self._make_review_group(topic)
        await self._copy_forward.leave(firsts)
        self._consume.trim(firsts)
        await stored.committer.alone(partial(stored.store.drop_oldest, segment.base))
        log.info(
            "segment removed",
            base=segment.base,
            size=segment.end - segment.base,
            reason=reason,
            used_percent=round(moment.used_percent, 1),
        )
        return True

    def _untaken(self, firsts: dict[int, int]) -> str | None:
        """The delay server that still needs rows below these sequences, if any does."""
        for topic in self._directory.topics():
            if topic.name.startswith(LATER_PREFIX) and topic.id in firsts:
                needed = max(self._stored.taken.get(topic.id, 0), self._consume.bounds(topic.id)[0])
                if needed < firsts[topic.id]:
                    return topic.name.removeprefix(LATER_PREFIX)
        return None

    def _wait_for_readers(self, segment: Segment, firsts: dict[int, int]) -> bool:
        """In use: put off, but not for ever."""
        reading = self._stored.fetcher.reading_below(segment.end)
        if not reading and not self._copy_forward.in_flight(firsts):
            return False
        now = self._clock.monotonic()
        if self._put_off[0] != segment.base:
            self._put_off = (segment.base, now)
        return now - self._put_off[1] < PUT_OFF_MAX_S

    def _log_once(self, text: str) -> None:
        """Once, not every few seconds."""
        if text != self._logged:
            log.warning(text)
            self._logged = text
