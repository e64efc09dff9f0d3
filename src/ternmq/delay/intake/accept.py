"""PUBLISH of delayed messages: check, recognise repeats, store, answer when safe.

Refused for good: a batch without due times, one due too far ahead, one too large to be sent on with
what dispatching adds to it. A repeat is answered with the first one's receipt; a repeat of a batch
on its way to the disk waits for it. Due times in the past are fine: such rows go out at once.
"""

import asyncio
from collections.abc import Callable
from operator import attrgetter

import numpy as np

from ternmq.batch.check import Incoming, check_incoming, describe_stored
from ternmq.batch.due import due_times
from ternmq.batch.layout import BATCH_SIZE_MAX, SPARE_BUFFERS, Column, ColumnPart, Stamp
from ternmq.batch.view import BatchView
from ternmq.core.clock import Clock
from ternmq.core.errors import (
    BadName,
    BadRequest,
    SequenceTooOld,
    TernError,
    TooLarge,
    TopicNotFound,
    Unauthorized,
    Unavailable,
)
from ternmq.core.ids import check_name
from ternmq.core.units import DAY_MS, KIB
from ternmq.delay.store.store import DelayStore
from ternmq.discovery.directory import TopicDirectory
from ternmq.replication.commit_gate import CommitGate
from ternmq.replication.group_commit import GroupCommit
from ternmq.replication.message_target import MessageTarget
from ternmq.rpc.address import packed_ip
from ternmq.rpc.bug_log import BUGS
from ternmq.rpc.peer import Peer
from ternmq.storage.log.append import Append
from ternmq.wire.frame import Frame
from ternmq.wire.messages.publish import PUBLISHED, PUBLISHED_DUPLICATE
from ternmq.wire.messages.topics import Topic, TopicSettings
from ternmq.wire.numbers import Command

_PUBLISH = int(Command.PUBLISH)
NOT_HANDLED = "the delay server failed to handle this request; its log says why"
DISPATCH_ROOM = 64 * KIB
"""A dispatched message also carries its id, its origin and the producer of the dispatch."""
SIZE_MAX = BATCH_SIZE_MAX - DISPATCH_ROOM

Key = tuple[tuple[int, int], int]


class PendingAccept:
    """A batch on its way to the disk, and who waits for it."""

    __slots__ = ("append", "done", "key", "size", "waiting")

    def __init__(self, append: Append, key: Key, peer: Peer | None, correlation: int = 0) -> None:
        self.append = append
        self.key = key
        self.size = len(append.batch)
        self.waiting = [] if peer is None else [(peer, correlation)]
        self.done: asyncio.Future[None] | None = None
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
        self._pending: dict[Key, PendingAccept] = {}
        self._making: set[asyncio.Task[None]] = set()
        self._target: MessageTarget[PendingAccept] = MessageTarget(
            store.wal.messages, attrgetter("append"), self._told, offers_alone=False
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
        """The topic is not known yet: make it (or refuse), then go on. Costs a task, once."""
        name = incoming.topic
        if name.startswith("%"):
            raise BadName(f"{name!r}: names that begin with '%' are the servers' own")
        check_name("topic", name)
        if not self._auto_create:
            raise TopicNotFound(
                f"topic {name!r} does not exist; create it with 'tern topic create {name}'"
            )
        size = len(frame.payload)
        peer.hold(size)

        async def make() -> None:
            try:
                topic = await self._directory.create_topic(name, TopicSettings())
                self._accept(peer, frame, incoming, topic)
            except TernError as error:
                peer.fail(_PUBLISH, frame.correlation, error)
            except Exception as bug:  # A task: nobody else would answer.
                BUGS.report(bug, command="PUBLISH")
                peer.fail(_PUBLISH, frame.correlation, Unavailable(NOT_HANDLED))
            finally:
                peer.release(size)

        task = asyncio.get_running_loop().create_task(make(), name="make-topic")
        self._making.add(task)
        task.add_done_callback(self._making.discard)

    def _accept(self, peer: Peer, frame: Frame, incoming: Incoming, topic: Topic) -> None:
        _check_topic(topic, incoming, peer, frame.payload)
        key = (incoming.producer, incoming.first_sequence)
        pending = self._pending.get(key)
        if pending is not None:
            pending.waiting.append((peer, frame.correlation))
            return
        producers = self._wal.producers
        stored = producers.find(incoming.producer, incoming.first_sequence, incoming.row_count)
        if stored is not None:
            receipt = PUBLISHED.pack(*stored, incoming.row_count, PUBLISHED_DUPLICATE)
            peer.answer(_PUBLISH, frame.correlation, receipt)
            return
        if producers.too_old(incoming.producer, incoming.first_sequence):
            raise SequenceTooOld(
                "this repeat is older than what the delay server remembers of its producer; it was "
                "not stored again: look for the message before you send it anew"
            )
        append = Append(
            batch=frame.payload,
            topic_id=topic.id,
            count=incoming.row_count,
            received_at_ms=self._now_ms(),
            client_ip=packed_ip(peer.address[0]),
            client_port=peer.address[1],
            server_ip=packed_ip(peer.server_address[0]),
            server_port=peer.server_address[1],
            producer=incoming.producer,
            first_sequence=incoming.first_sequence,
        )
        self._store.names[topic.id] = topic.name
        pending = PendingAccept(append, key, peer, frame.correlation)
        self._pending[key] = pending
        peer.hold(pending.size)
        self.rounds.put(self._target, pending)

    async def take(self, batch: bytearray, topic: Topic, stamp: Stamp) -> None:
        """Store a batch that was accepted elsewhere (`stamp`) and is promised; safe on return. If
        nobody can read it, it is kept here and listed, as others of before (`batch.readable`)."""
        incoming = describe_stored(batch)
        append = Append(
            batch=batch,
            topic_id=topic.id,
            count=incoming.row_count,
            received_at_ms=stamp.received_at_ms,
            client_ip=stamp.client_ip,
            client_port=stamp.client_port,
            server_ip=stamp.server_ip,
            server_port=stamp.server_port,
            producer=incoming.producer,
            first_sequence=incoming.first_sequence,
        )
        self._store.names[topic.id] = topic.name
        pending = PendingAccept(append, (incoming.producer, incoming.first_sequence), None)
        pending.done = asyncio.get_running_loop().create_future()
        self.rounds.put(self._target, pending)
        await asyncio.shield(pending.done)

    async def topic_of(self, name: str) -> Topic | None:
        """The topic of that name, made if that is allowed."""
        topic = self._directory.topic(name)
        if topic is None and self._auto_create and not name.startswith("%"):
            topic = await self._directory.create_topic(name, TopicSettings())
        return topic

    def _told(self, items: list[PendingAccept], error: TernError | None) -> None:
        for item in items:
            self._tell(item, error)
        if error is None:
            self._on_safe()

    def _tell(self, item: PendingAccept, error: TernError | None) -> None:
        self._pending.pop(item.key, None)
        if item.waiting:
            item.waiting[0][0].release(item.size)
        if item.done is not None and error is None:
            item.done.set_result(None)
        elif item.done is not None and error is not None:
            item.done.set_exception(error)
        append, flags = item.append, 0
        for peer, correlation in item.waiting:
            if error is not None:
                peer.fail(_PUBLISH, correlation, error)
                continue
            # A delay counts from when it was received, so that is what a receipt can add it to.
            place = (append.topic_id, append.base_sequence, append.received_at_ms, append.count)
            peer.answer(_PUBLISH, correlation, PUBLISHED.pack(*place, flags))
            flags = PUBLISHED_DUPLICATE

    async def close(self) -> None:
        if self._making:
            await asyncio.wait(self._making)
        await self.rounds.close()


def _check_topic(
    topic: Topic, incoming: Incoming, peer: Peer, batch: bytearray | memoryview
) -> None:
    """What the broker would refuse at the end is refused at the door."""
    settings = topic.settings
    app = peer.hello.app if peer.hello else ""
    if settings.closed and app not in settings.apps:
        raise Unauthorized(
            f"topic {topic.name!r} is closed and application {app!r} is not on its list; "
            "ask its owner to add it"
        )
    if incoming.body_size > settings.body_size_max < BATCH_SIZE_MAX:
        offsets = BatchView(batch).buffer(Column.BODY, ColumnPart.OFFSETS)
        largest = int(np.diff(np.frombuffer(offsets or b"", dtype="<i4")).max())
        if largest > settings.body_size_max:
            raise TooLarge(
                f"a body of {largest} bytes; topic {topic.name!r} takes at most "
                f"{settings.body_size_max}"
            )
