"""What a broker does on its own: replay at start, leases that run out, retries, checkpoints.

At start every group is rebuilt from the pull log; where the message log ends before what a group
knows (a machine that lost power with async flush), a durable CUT is written first, so that new
messages are never born acked. While running, a timer that sleeps until the next deadline brings
leases and retries back, and a slower one writes snapshots and checkpoints, so that the next start
reads little.
"""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

from ternmq.broker.acks.ack import AckHandler
from ternmq.broker.delivery.pull import PullHandler
from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.groups.lane_event import LaneEvent
from ternmq.broker.groups.snapshot import pieces_of
from ternmq.broker.log.commit import Committer
from ternmq.core.errors import TernError
from ternmq.core.lifecycle import Pulse
from ternmq.core.log import get_logger
from ternmq.storage.pull.pull_log import PullRecord
from ternmq.storage.pull.record import RECORD_SIZE_MAX, PullKind, encoded_size
from ternmq.storage.store import Store

log = get_logger()

INDEX_INTERVAL_S = 0.5
INDEX_REST_S = 0.0002
SNAPSHOT_AFTER_RECORDS = 1_000
SNAPSHOTS_AT_ONCE = 200
SNAPSHOT_WAIT_S = 5.0
SNAPSHOT_PIECES_MAX = 900_000  # More would not fit into a record.
REST_PER_PIECE_US = 500  # A piece takes half a microsecond to save: a thousandth of the time.


def rest() -> None:
    """Between pieces of indexing: a thread that never waits keeps the loop from the GIL for 5 ms at
    a time, and a producer with it."""
    time.sleep(INDEX_REST_S)


class BrokerTimers:
    """Timers around the lanes and the store."""

    def __init__(
        self,
        *,
        groups: ConsumerGroups,
        pull_handler: PullHandler,
        ack_handler: AckHandler,
        committer: Committer,
        store: Store,
        checkpoint_interval_s: float,
        flush_interval_s: float,
    ) -> None:
        self._groups = groups
        self._pull_handler = pull_handler
        self._ack_handler = ack_handler
        self._committer = committer
        self._store = store
        self._interval_s = checkpoint_interval_s
        self._flush_interval_s = flush_interval_s
        self._spawned: set[asyncio.Task[None]] = set()

    async def replay(self, topics: dict[int, str], grace_ms: int) -> None:
        """Rebuild the groups, then make them agree with the message log."""
        loop = asyncio.get_running_loop()
        records = await loop.run_in_executor(None, lambda: list(self._store.pulls.replay()))
        self._groups.replay(records, topics=topics, grace_ms=grace_ms)
        self._groups.skip_forgotten(self._store.epoch)
        cuts: list[PullRecord] = []
        for group in self._groups:
            end = self._store.consume.bounds(group.topic_id)[1]
            lane = group.lane
            if max(lane.next, lane.end) > end:
                if lane.next > end or lane.start > end:
                    cut = LaneEvent(PullKind.CUT, ((end, max(lane.next, lane.end), 0),))
                    cuts.append(self._groups.to_record(group, cut))
                    log.warning(
                        "message log ends before the pull log",
                        topic=group.topic,
                        group=group.name,
                        end=end,
                        known=lane.next,
                    )
                lane.cut_to(end)
            lane.grow(end)
            lane.ledger()
            self._groups.schedule(group)
        if cuts:
            await self._committer.decide(cuts)

    async def run(self, pulse: Pulse) -> None:
        """Bring back what is due, forever."""
        while True:
            await pulse.until(lambda: self._groups.is_due(self._groups.now()))
            now = self._groups.now()
            for group in list(self._groups.due(now)):
                try:
                    self._tick(group, now)
                except Exception as bug:  # One group's bug must not stop the others' deadlines.
                    log.error("a deadline failed by a bug", group=group.name, error=repr(bug))

    def _tick(self, group: ConsumerGroup, now: int) -> None:
        ticked = group.lane.tick(
            now, group.retry_rule(chance=random.random()), self._groups.now_ms()
        )
        self._groups.write(group, ticked.changes)
        if ticked.moving:
            self._ack_handler.killed(group, ticked.moving)
        if ticked.overdue:
            self._ack_handler.overdue(group, ticked.overdue)
        if group.order is not None:
            group.order.come_back(group.lane)
        self._groups.schedule(group)
        self._pull_handler.feed(group)

    async def run_checkpoints(self) -> None:
        """Snapshot groups that moved, and let the store note where it is, forever."""
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.checkpoint()
            except TernError as error:
                log.warning("checkpoint not written", reason=error.message)
            except Exception as bug:  # The next one may work; the broker must not die of it.
                log.error("checkpoint failed by a bug", error=repr(bug))

    async def run_flush(self, pulse: Pulse) -> None:
        """What was handed to the operating system reaches the disk, also when nothing comes after
        it, forever: messages (flush=async), and what groups did, which is told only then."""
        while True:
            await pulse.until(lambda: bool(self._unsynced()), after_s=self._flush_interval_s)
            for sync in self._unsynced():
                try:
                    await self._committer.alone(sync)
                except TernError as error:
                    log.error("flush failed", reason=error.message)

    def _unsynced(self) -> list[Callable[[], None]]:
        messages, pulls = self._store.messages, self._store.pulls
        due = [messages.sync_due] if messages.synced_offset < messages.safe_offset else []
        if pulls.failed is None and pulls.synced_offset < pulls.end:
            due.append(pulls.sync_due)
        return due

    async def run_index(self) -> None:
        """What was stored becomes findable by id and key, on a thread of its own, forever. And it
        is seen whether the logs are still there."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(None, self._store.look)
                await loop.run_in_executor(None, self._store.upkeep_index, rest)
            except Exception as bug:  # The log is safe; the next round may work.
                log.error("indexing failed by a bug", error=repr(bug))
            await asyncio.sleep(INDEX_INTERVAL_S)

    async def checkpoint(self) -> None:
        records: list[PullRecord] = []
        pinning = set(self._store.pulls.pinning(SNAPSHOTS_AT_ONCE))
        for group in list(self._groups):
            if group.deleted:
                continue
            moved = group.records >= SNAPSHOT_AFTER_RECORDS
            if moved or (group.id, group.topic_id) in pinning:
                if not self._affordable(group):
                    continue
                record = self._groups.snapshot_record(group)
                if encoded_size(record) <= RECORD_SIZE_MAX:
                    records.append(record)
                else:  # Replay takes longer then; nothing is lost.
                    log.warning("group too scattered to snapshot", group=group.name)
            if len(records) >= SNAPSHOTS_AT_ONCE:
                await self._write(records)
                records = []
        if records:
            await self._write(records)
        await self._committer.alone(self._store.checkpoint)

    async def _write(self, snapshots: list[PullRecord]) -> None:
        """Snapshots are of use once they are safe; a replica that is away does not hold up the
        rest."""
        deciding = self._committer.decide(snapshots)
        deciding.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait([deciding], timeout=SNAPSHOT_WAIT_S)
        if deciding.done():
            deciding.result()

    def _affordable(self, group: ConsumerGroup) -> bool:
        """A snapshot stops the loop for a moment: of a group whose rows are scattered over a
        million ranges for half a second. The more ranges, the less often; replay reads more."""
        now = self._groups.now()
        if now < group.snapshot_after:
            return False
        pieces = pieces_of(group.lane)
        group.snapshot_after = now + pieces * REST_PER_PIECE_US // 1000
        if pieces > SNAPSHOT_PIECES_MAX:  # Replay takes longer then; nothing is lost.
            log.warning("group too scattered to snapshot", group=group.name, ranges=pieces)
            return False
        return True

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something short on the side; a failure is logged, not lost."""
        task = asyncio.get_running_loop().create_task(work)
        self._spawned.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._spawned.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("side task failed", exc_info=error)
