"""Taking a batch from a producer: check it, recognise repeats, store it, answer when it is safe.

A repeat (same producer, same first sequence) of a stored batch is answered with the first one's
receipt; a repeat of one that is still on its way to the disk waits for it. So a producer that lost
its connection sends the same bytes again and nothing is stored twice. Consumers learn of the batch
elsewhere, once it is safe: nothing here waits for that.
"""

import asyncio
import ipaddress
from collections.abc import Callable

import numpy as np

from ternmq.batch.check import Incoming, check_incoming
from ternmq.batch.layout import Column, Part
from ternmq.batch.view import BatchView
from ternmq.broker.commit import Committer
from ternmq.broker.topics import Topics
from ternmq.core.clock import Clock
from ternmq.core.errors import BadRequest, SequenceTooOld, TernError, TooLarge
from ternmq.rpc.peer import Peer
from ternmq.storage.message_log import Append
from ternmq.storage.producers import ProducerTable
from ternmq.wire.commands import PUBLISHED, PUBLISHED_DUPLICATE, Command, Topic
from ternmq.wire.frame import Frame

_PUBLISH = int(Command.PUBLISH)
ProducerKey = tuple[tuple[int, int], int]
Ends = tuple[bytes, int, bytes, int]


class Pending:
    """A batch on its way to the disk, and who waits for it."""

    __slots__ = ("_forget", "correlation", "count", "key", "peer", "repeats", "size", "topic_id")

    def __init__(
        self, peer: Peer, correlation: int, append: Append, key: ProducerKey, forget: "Forget"
    ) -> None:
        self.peer = peer
        self.correlation = correlation
        self.size = len(append.batch)
        self.count = append.count
        self.topic_id = append.topic_id
        self.key = key
        self.repeats: list[tuple[Peer, int]] = []
        self._forget = forget

    def __call__(self, append: Append, error: TernError | None) -> None:
        """The batch is safe, or it is certain that it is not stored."""
        self._forget(self.key)
        self.peer.release(self.size)
        if error is not None:
            for peer, correlation in [(self.peer, self.correlation), *self.repeats]:
                peer.fail(_PUBLISH, correlation, error)
            return
        place = (append.topic_id, append.base_sequence, append.stored_at_ms, append.count)
        self.peer.answer(_PUBLISH, self.correlation, PUBLISHED.pack(*place, 0))
        for peer, correlation in self.repeats:
            peer.answer(_PUBLISH, correlation, PUBLISHED.pack(*place, PUBLISHED_DUPLICATE))


Forget = Callable[[ProducerKey], None]


class Publisher:
    """The PUBLISH command."""

    def __init__(
        self, *, topics: Topics, committer: Committer, producers: ProducerTable, clock: Clock
    ) -> None:
        self._topics = topics
        self._committer = committer
        self._producers = producers
        self._now_ms = clock.now_ms
        self._pending: dict[ProducerKey, Pending] = {}
        self._making: set[asyncio.Task[None]] = set()

    def publish(self, peer: Peer, frame: Frame) -> None:
        batch = frame.payload
        incoming = check_incoming(batch)
        if incoming.delayed:
            raise BadRequest(
                "this broker stores messages for now; one with a due time goes to a delay server "
                "(a route of kind 'delay')"
            )
        topic = self._topics.find(incoming.topic)
        if topic is None:
            self._make_first(peer, frame, incoming)
        else:
            self._accept(peer, frame, incoming, topic)

    def _make_first(self, peer: Peer, frame: Frame, incoming: Incoming) -> None:
        """The topic is not known yet: make it (or refuse), then go on. Costs a task, once."""
        self._topics.check_auto(incoming.topic)
        size = len(frame.payload)
        peer.hold(size)

        async def make() -> None:
            try:
                topic = await self._topics.auto_create(incoming.topic)
                self._accept(peer, frame, incoming, topic)
            except TernError as error:
                peer.fail(_PUBLISH, frame.correlation, error)
            finally:
                peer.release(size)

        task = asyncio.get_running_loop().create_task(make(), name="make-topic")
        self._making.add(task)
        task.add_done_callback(self._making.discard)

    def _accept(self, peer: Peer, frame: Frame, incoming: Incoming, topic: Topic) -> None:
        batch, correlation = frame.payload, frame.correlation
        settings = topic.settings
        if settings.closed:
            self._topics.check_app(topic, peer)
        if incoming.body_size > settings.body_size_max:
            _check_sizes(batch, topic)
        key = (incoming.producer, incoming.first_sequence)
        pending = self._pending.get(key)
        if pending is not None:
            pending.repeats.append((peer, correlation))
            return
        stored = self._producers.find(
            incoming.producer, incoming.first_sequence, incoming.row_count
        )
        if stored is not None:
            place = (stored.topic_id, stored.base_sequence, stored.stored_at_ms)
            receipt = PUBLISHED.pack(*place, incoming.row_count, PUBLISHED_DUPLICATE)
            peer.answer(_PUBLISH, correlation, receipt)
            return
        if self._producers.too_old(incoming.producer, incoming.first_sequence):
            raise SequenceTooOld(
                "this repeat is older than what the broker remembers of its producer; "
                "it was not stored again: look for the message before you send it anew"
            )
        ends: Ends = peer.attachments.get("ends") or _ends(peer)
        append = Append(
            batch=batch,
            topic_id=topic.id,
            count=incoming.row_count,
            received_at_ms=self._now_ms(),
            client_ip=ends[0],
            client_port=ends[1],
            server_ip=ends[2],
            server_port=ends[3],
            tag_bloom=incoming.tag_bloom,
            priority=incoming.priority,
            producer=incoming.producer,
            first_sequence=incoming.first_sequence,
        )
        pending = Pending(peer, correlation, append, key, self._forget)
        self._pending[key] = pending
        peer.hold(pending.size)
        self._committer.append(append, pending)

    def _forget(self, key: ProducerKey) -> None:
        self._pending.pop(key, None)


def _ends(peer: Peer) -> Ends:
    """Both ends of the connection as the batch header wants them; worked out once per peer."""
    ends = (
        packed_ip(peer.address[0]),
        peer.address[1],
        packed_ip(peer.server_address[0]),
        peer.server_address[1],
    )
    peer.attachments["ends"] = ends
    return ends


def packed_ip(host: str) -> bytes:
    """16 bytes: IPv6, or IPv4 mapped into it; zeros for anything else."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return bytes(16)
    return address.packed if address.version == 6 else b"\0" * 10 + b"\xff\xff" + address.packed


def _check_sizes(batch: bytearray | memoryview, topic: Topic) -> None:
    offsets = BatchView(batch).buffer(Column.BODY, Part.OFFSETS)
    largest = int(np.diff(np.frombuffer(offsets or b"", dtype="<i4")).max())
    if largest > topic.settings.body_size_max and topic.settings.body_size_max < 4 * 1024 * 1024:
        raise TooLarge(
            f"a body of {largest} bytes; topic {topic.name!r} takes at most "
            f"{topic.settings.body_size_max}"
        )
