"""A broker that follows, besides copying: it answers READ, SEEK and STATUS, and keeps files small.

What the master calls safe is visible here. What the master removed is removed here too.
"""

import asyncio
from functools import partial
from typing import Any

from ternmq.broker.config import BrokerConfig
from ternmq.broker.delivery.group_position import FollowedGroups
from ternmq.broker.delivery.read import ReadHandler
from ternmq.broker.log.fetch import Fetcher
from ternmq.broker.maintenance.timers import INDEX_INTERVAL_S, rest
from ternmq.broker.operations.status import ServerStatus
from ternmq.broker.router import follower_commands
from ternmq.broker.topics import TopicNames
from ternmq.broker.visibility import FollowerVisibility
from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.metrics.samples import Samples
from ternmq.replication.following.replica_writer import ReplicaWriter
from ternmq.replication.member.member_context import MemberContext
from ternmq.replication.member.role_switch import FollowerRouter
from ternmq.replication.member.server_kind import FollowProgress, Loops
from ternmq.rpc.peer import Peer
from ternmq.rpc.pending_requests import PendingRequests
from ternmq.rpc.prometheus import server_figures
from ternmq.storage.files.set_aside import asides
from ternmq.storage.store import Store
from ternmq.wire.messages.replication import MESSAGES
from ternmq.wire.messages.stats import Status, StatusQuery, TopicStatus
from ternmq.wire.messages.topics import asked_once

log = get_logger()


class BrokerFollower:
    """A broker as replica."""

    epoch = 0

    def __init__(
        self,
        context: MemberContext,
        store: Store,
        config: BrokerConfig,
        progress: FollowProgress,
    ) -> None:
        self._context = context
        self._progress = progress
        self._checkpoint_interval_s = config.checkpoint_interval_ms / 1000
        self._store = store
        self._fetcher = Fetcher(store.messages)
        self._topics = TopicNames(context.directory, auto_create=False, body_size_max=1)
        self._read_handler = ReadHandler(
            consume=store.consume,
            fetcher=self._fetcher,
            topics=self._topics,
            groups=FollowedGroups(store.pulls, context.directory.topics, context.clock),
        )
        self._visibility = FollowerVisibility(
            fetcher=self._fetcher, read_handler=self._read_handler
        )
        self._pending_requests = PendingRequests()
        self._server = ServerStatus(
            place=context.place,
            clock=context.clock,
            disk=context.disk,
            store=store,
            listener=context.listener,
            member=context.me,
            started_at_ms=context.clock.now_ms(),
        )
        self.route = FollowerRouter(
            follower_commands(self._read_handler, self._pending_requests, self.status),
            f"this server is a replica of broker group {context.broker_group!r}: "
            "it answers reads only; ask for routes again",
        ).route
        self._lacked = (-1, 0, 0)
        """Where the master's history parted from this one, where this one ended; how many rows were
        perhaps acknowledged here and are not there."""

    def lost(self, peer: Peer) -> None:
        pass

    def on_safe(self, number: int, appends: Any) -> None:
        """More is safe, as the master says: readers may see it."""
        if number == MESSAGES:
            self._visibility.on_safe(appends)

    def status(self, query: StatusQuery) -> Status:
        """What this replica says about itself."""
        trouble = self._progress.trouble
        return self._server.status(
            f"replica: {trouble}" if trouble else self._well(),
            self._server.free(),
            topics=[self._topic_status(name) for name in asked_once(query.topics)],
            epoch=self._context.member.accepted_epoch,
            lag=self._progress.lag(),
        )

    def _well(self) -> str:
        kept = asides(self._context.disk, self._context.place.data_dir / "broker")
        return f"ok, kept aside: {', '.join(kept)}" if kept else "ok"

    def _topic_status(self, name: str) -> TopicStatus:
        topic = self._topics.get(name)
        first, end = self._store.consume.bounds(topic.id)
        return TopicStatus(topic=name, id=topic.id, first=first, end=end, groups=0)

    def count_lacked(self, cut_to: int) -> None:
        """Say which messages are here that the master lacks; blocks. Before they are cut off."""
        stored = self._store.messages
        if self._lacked[:2] == (cut_to, stored.end):
            return
        found = stored.rows_from(cut_to)
        rows = sum(count for _, count in found.values())
        acknowledged = not self._context.standing.waits or cut_to < stored.acknowledged
        self._lacked = cut_to, stored.end, rows if acknowledged else 0
        (log.error if acknowledged else log.warning)(
            "the master that leads now lacks messages that are here",
            acknowledged="perhaps" if acknowledged else "never",
            rows=rows,
            from_offset=cut_to,
            to_offset=stored.end,
            topics={
                topic: {"first": first, "rows": count}
                for topic, (first, count) in sorted(found.items())
            },
        )

    async def scrape(self, out: Samples) -> None:
        listener = self._context.listener
        server_figures(out, self.status(StatusQuery()), listener)
        out.add("tern_diverged_messages", self._lacked[2])
        out.add("tern_read_bytes_total", self._fetcher.read_size)

    @property
    def failed(self) -> TernError | None:
        return None  # Its logs are all that it has; `ReplicaWriter` says what is wrong with them.

    def loops(self, writer: ReplicaWriter) -> Loops:
        return {"checkpoints": partial(self._run_checkpoints, writer), "index": self._run_index}

    async def _run_checkpoints(self, writer: ReplicaWriter) -> None:
        while True:
            await asyncio.sleep(self._checkpoint_interval_s)
            try:
                await writer.alone(self._store.checkpoint)
                start = writer.starts[MESSAGES]
                if start > self._store.messages.start_offset:
                    await writer.alone(partial(self._store.drop_before, start))
            except TernError as error:
                log.warning("checkpoint not written", reason=error.message)

    async def _run_index(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await loop.run_in_executor(None, self._store.upkeep_index, rest)
            await asyncio.sleep(INDEX_INTERVAL_S)

    async def close(self) -> None:
        self._read_handler.stop()
        await self._pending_requests.finish()
        self._fetcher.close()
