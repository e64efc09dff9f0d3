"""PUBLISH of delayed messages: check, recognise repeats, store, answer when safe.

Refused for good: a batch without due times, one due too far ahead, one too large to be sent on with
what dispatching adds to it. A repeat is answered like the first one (`intake.pending_batches`). Due
times in the past are fine: such rows go out at once.
"""

import asyncio
from collections.abc import Callable
from operator import attrgetter

from ternmq.batch.check import Incoming, check_incoming, describe_stored
from ternmq.batch.due import due_times
from ternmq.batch.layout import BATCH_SIZE_MAX, SPARE_BUFFERS, Stamp
from ternmq.batch.view import BatchView
from ternmq.core.clock import Clock
from ternmq.core.errors import BadRequest, TernError, TooLarge
from ternmq.core.units import DAY_MS, KIB
from ternmq.delay.store.store import DelayStore
from ternmq.discovery.directory import TopicDirectory
from ternmq.intake.pending_batches import (
    AnswerFlags,
    PendingBatch,
    PendingBatches,
    append_of,
    refuse_elsewhere,
)
from ternmq.intake.topic_rules import (
    check_app,
    check_body_sizes,
    check_new_topic,
    check_sealed,
    made_for,
)
from ternmq.replication.commit_gate import CommitGate
from ternmq.replication.group_commit import GroupCommit
from ternmq.replication.message_target import MessageTarget
from ternmq.rpc.peer import Peer
from ternmq.storage.log.append import Append
from ternmq.wire.frame import Frame
from ternmq.wire.messages.topics import Topic, TopicSettings

DISPATCH_ROOM = 64 * KIB
"""A dispatched message also carries its id, its origin and the producer of the dispatch."""
SIZE_MAX = BATCH_SIZE_MAX - DISPATCH_ROOM


class PendingAccept(PendingBatch):
    """A batch on its way to the disk, and who waits for it."""

    __slots__ = ("done",)

    def __init__(
        self,
        append: Append,
        peer: Peer | None,
        correlation: int = 0,
        done: "asyncio.Future[None] | None" = None,
    ) -> None:
        super().__init__(append, peer, correlation)
        self.done = done
        """Where this server brought it itself."""


class Acceptor:
    """The PUBLISH command of a delay server."""

    def __init__(
        self,
        store: DelayStore,
        *,
        directory: TopicDirectory,
        clock: Clock,
        max_days: int,
        auto_create: bool,
        on_safe: Callable[[], None],
        gate: CommitGate,
    ) -> None:
        self._store = store
        self._wal = store.wal
        self._directory = directory
        self._now_ms = clock.now_ms
        self._max_days = max_days
        self._auto_create = auto_create
        self._on_safe = on_safe
        self._pending: PendingBatches[PendingAccept] = PendingBatches(
            "the delay server",
            store.wal.producers,
            # Delivery records are the broker's that gets the message when it is due.
            AnswerFlags(gate, synced=True, traced=False),
        )
        self._target: MessageTarget[PendingAccept] = MessageTarget(
            store.wal.messages, attrgetter("append"), self._round_done, offers_alone=False
        )
        self.rounds = GroupCommit("the delay server", "tern-delay-wal", [self._target], gate)

    def publish(self, peer: Peer, frame: Frame) -> None:
        incoming = check_incoming(frame.payload, spare_buffers=SPARE_BUFFERS)
        self._check(frame.payload, incoming)
        topic = self._directory.topic(incoming.topic)
        if topic is None:
            self._make_first(peer, frame, incoming)
        else:
            self._accept(peer, frame, incoming, topic)

    def _check(self, batch: bytearray | memoryview, incoming: Incoming) -> None:
        failed = self._store.failed
        if failed is not None:
            raise failed.copy()
        if not incoming.delayed:
            raise BadRequest("these messages have no due time; send them to a broker")
        if len(batch) > SIZE_MAX:
            raise TooLarge(
                f"a batch of {len(batch)} bytes; a delayed one takes at most {SIZE_MAX}: send less "
                "at once, or send a link to large data"
            )
        now_ms = self._now_ms()
        latest = int(due_times(BatchView(batch), now_ms).max())
        if latest > now_ms + self._max_days * DAY_MS:
            raise BadRequest(
                f"due more than {self._max_days} days ahead; the limit is delay_max_days"
            )

    def _make_first(self, peer: Peer, frame: Frame, incoming: Incoming) -> None:
        """The topic is not known yet: make it (or refuse), then go on."""
        check_new_topic(incoming.topic, auto_create=self._auto_create)

        async def make() -> None:
            settings = made_for(peer.use, TopicSettings(), self._directory.topics)
            topic = await self._directory.create_topic(incoming.topic, settings)
            self._accept(peer, frame, incoming, topic)

        self._pending.later(peer, frame, make())

    def _accept(self, peer: Peer, frame: Frame, incoming: Incoming, topic: Topic) -> None:
        if self._pending.repeats(peer, frame.correlation, incoming, topic, refuse_elsewhere):
            return
        # What the broker would refuse at the end is refused at the door.
        check_app(topic, peer.hello.app if peer.hello else "")
        check_body_sizes(topic, incoming, frame.payload)
        if topic.settings.master_key:
            check_sealed(topic, frame.payload)
        if peer.use is not None:
            peer.use.check_sending(incoming.row_count, len(frame.payload))
            if peer.use.quota.delayed_max:
                now_ms = self._now_ms()
                peer.use.delay(due_times(BatchView(frame.payload), now_ms).tolist(), now_ms)
        append = append_of(frame.payload, incoming, topic.id, self._now_ms(), peer.endpoints)
        self._store.names[topic.id] = topic.name
        pending = PendingAccept(append, peer, frame.correlation)
        self._pending.add(pending)
        self.rounds.put(self._target, pending)

    async def take(self, batch: bytearray, topic: Topic, stamp: Stamp) -> None:
        """Store a batch that was accepted elsewhere (`stamp`) and is promised; safe on return. If
        nobody can read it, it is kept here and listed, as others of before
        (`batch.readability`)."""
        incoming = describe_stored(batch)
        append = append_of(batch, incoming, topic.id, stamp.received_at_ms, stamp)
        self._store.names[topic.id] = topic.name
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.rounds.put(self._target, PendingAccept(append, None, done=done))
        await asyncio.shield(done)

    async def topic_of(self, name: str) -> Topic | None:
        """The topic of that name, made if that is allowed."""
        topic = self._directory.topic(name)
        if topic is None and self._auto_create and not name.startswith("%"):
            topic = await self._directory.create_topic(name, TopicSettings())
        return topic

    def _round_done(self, items: list[PendingAccept], error: TernError | None) -> None:
        for item in items:
            self._tell(item, error)
        if error is None:
            self._on_safe()

    def _tell(self, item: PendingAccept, error: TernError | None) -> None:
        self._pending.remove(item)
        if item.done is not None and error is None:
            item.done.set_result(None)
        elif item.done is not None and error is not None:
            item.done.set_exception(error)
        if error is not None:
            item.fail(error)
        else:
            # A delay counts from when it was received, so that is what a receipt can add it to.
            item.answer(item.append.received_at_ms, self._pending.flags.now)

    async def close(self) -> None:
        await self._pending.finish()
        await self.rounds.close()
