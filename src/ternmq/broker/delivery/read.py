"""Stateless reading by sequence: browse, replay, broadcast, Spark. No lease, no trace of a reader.

Answers whole batches from the given sequence on, the first one cut where it begins earlier. Only
what is safe is seen. A reader at the end may wait for more. Batches that are damaged, here and
everywhere, are passed over, as removed ones are: the reader sees a gap in the sequences, the log of
the broker says why.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from ternmq.batch.envelope import pack_envelope
from ternmq.batch.layout import Buffer
from ternmq.batch.rows.cut import project
from ternmq.broker.delivery.envelopes import Envelopes
from ternmq.broker.delivery.group_position import GroupPositions
from ternmq.broker.delivery.handout import Slice
from ternmq.broker.delivery.pull import NOT_ANSWERED, SIZE_MAX
from ternmq.broker.delivery.seek import seek
from ternmq.broker.log.fetch import Fetcher
from ternmq.broker.topics import TopicNames, from_delay_server
from ternmq.core.errors import Corrupt, OverLimit, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.discovery.hidden_topics import LATER_PREFIX
from ternmq.rpc.bug_log import BUGS
from ternmq.rpc.peer import Peer
from ternmq.storage.consume.consume_log import ConsumeLog
from ternmq.storage.consume.entry import ConsumeEntry
from ternmq.wire.frame import Frame
from ternmq.wire.messages.pull import DELIVERED
from ternmq.wire.messages.read import Read, Seek, Sought
from ternmq.wire.messages.topics import Topic
from ternmq.wire.numbers import Command
from ternmq.wire.record import unpack

log = get_logger()

_READ = int(Command.READ)
ROWS_MAX = 50_000
READS_MAX = 1_000  # Reads of one client that may wait at one time.
WAIT_MAX_MS = 30_000


class PendingRead(NamedTuple):
    """One READ that waits for messages."""

    peer: Peer
    correlation: int
    topic_id: int
    columns: frozenset[int]


class ReadHandler:
    """The READ command."""

    def __init__(
        self,
        *,
        consume: ConsumeLog,
        fetcher: Fetcher,
        topics: TopicNames,
        groups: GroupPositions,
    ) -> None:
        self._groups = groups
        self._consume = consume
        self._fetcher = fetcher
        self._topics = topics
        self._loop = asyncio.get_running_loop()
        self.waiting: dict[int, dict[tuple[Peer, int], tuple[Read, asyncio.TimerHandle]]] = {}
        """By topic: reads at its end."""
        self._waiting_of: dict[Peer, int] = {}
        """How many of them are of each connection."""
        self._reading: set[asyncio.Task[None]] = set()
        self.taken: dict[int, int] = {}
        """Up to which sequence delay servers have taken their own topics: where they read on."""

    def untaken(self, topics: Iterable[Topic]) -> int:
        """How many messages delay servers have not taken; all of those whose server is silent."""
        left = 0
        for topic in topics:
            if topic.name.startswith(LATER_PREFIX):
                first, end = self._consume.bounds(topic.id)
                left += end - max(first, self.taken.get(topic.id, 0))
        return left

    def handle(self, peer: Peer, frame: Frame) -> None:
        """The READ command."""
        request = unpack(frame.payload, Read)
        topic = self._topics.get(request.topic)
        self._topics.check_app(topic, peer)
        self.read(peer, frame.correlation, topic.id, request)

    def read(self, peer: Peer, correlation: int, topic_id: int, request: Read) -> None:
        """Answer now if there is something, else when there is, else after `wait_ms`."""
        if from_delay_server(peer):
            self.taken[topic_id] = max(request.sequence, self.taken.get(topic_id, 0))
        if self._serve(peer, correlation, topic_id, request):
            return
        waiting = self._waiting_of.get(peer, 0)
        if waiting >= READS_MAX:
            raise OverLimit(f"{READS_MAX} reads of this client are waiting already")
        self._waiting_of[peer] = waiting + 1
        key = (peer, correlation)
        wait_s = min(request.wait_ms, WAIT_MAX_MS) / 1000
        timer = self._loop.call_later(wait_s, self._expire, topic_id, key)
        self.waiting.setdefault(topic_id, {})[key] = (request, timer)

    async def seek(self, request: Seek) -> Sought:
        """The SEEK command: where to read."""
        return await seek(self._consume, self._topics, request, self._groups)

    def grew(self, topic_id: int) -> None:
        """More messages of a topic are safe."""
        for (peer, correlation), (request, timer) in self.waiting.pop(topic_id, {}).items():
            self._stop_waiting(peer, timer)
            if peer.writable:
                self.read(peer, correlation, topic_id, request)
            else:  # It does not read what it has; let it ask again when it does.
                peer.answer(_READ, correlation, DELIVERED.pack(0, 0, request.sequence))

    def refuse(self, topic_id: int, error: TernError) -> None:
        """The topic is gone."""
        for (peer, correlation), (_, timer) in self.waiting.pop(topic_id, {}).items():
            self._stop_waiting(peer, timer)
            peer.fail(_READ, correlation, error)

    def stop(self) -> None:
        for topic_id in list(self.waiting):
            self.refuse(topic_id, Unavailable("the broker is stopping; connect again in a moment"))

    def _expire(self, topic_id: int, key: tuple[Peer, int]) -> None:
        waiting = self.waiting.get(topic_id, {})
        request, timer = waiting.pop(key)
        self._stop_waiting(key[0], timer)
        if not waiting:
            self.waiting.pop(topic_id, None)
        key[0].answer(_READ, key[1], DELIVERED.pack(0, 0, request.sequence))

    def _stop_waiting(self, peer: Peer, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        left = self._waiting_of.pop(peer) - 1
        if left:
            self._waiting_of[peer] = left

    def _serve(self, peer: Peer, correlation: int, topic_id: int, request: Read) -> bool:
        first, end = self._consume.bounds(topic_id)
        stop = min(end, request.end) if request.end else end
        at = max(request.sequence, first)
        if at >= stop:
            if request.wait_ms > 0 and not (request.end and at >= request.end):
                return False
            peer.answer(_READ, correlation, DELIVERED.pack(0, 0, at))
            return True
        limits = (min(max(request.rows_max, 1), ROWS_MAX), min(max(request.size_max, 1), SIZE_MAX))
        pending = PendingRead(peer, correlation, topic_id, frozenset(request.columns))
        entries = self._consume.entries_nowait(topic_id, at, rows_max=limits[0], size_max=limits[1])
        if entries is not None:
            slices = choose(entries, at, stop, *limits)
            try:
                batches = self._fetcher.now([piece.entry for piece in slices])
            except Corrupt:
                batches = None
            if batches is not None:
                self._send(pending, slices, batches, following(slices, stop))
                return True
        peer.hold(limits[1])  # So a client cannot have more read for it than it takes.
        task = self._loop.create_task(self._send_later(pending, at, stop, limits))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)
        return True

    async def _send_later(
        self, pending: PendingRead, at: int, stop: int, limits: tuple[int, int]
    ) -> None:
        """Send by a thread that may wait for the disk."""
        try:
            entries = await self._fetcher.run(
                lambda: self._consume.entries(
                    pending.topic_id, at, rows_max=limits[0], size_max=limits[1]
                )
            )
            slices = choose(entries, at, stop, *limits)
            readable, batches = await self._read(slices)
            self._send(pending, readable, batches, following(slices, stop))
        except TernError as error:
            pending.peer.fail(_READ, pending.correlation, error)
        except Exception as bug:  # A task: nobody else would answer.
            BUGS.report(bug, command="READ")
            pending.peer.fail(_READ, pending.correlation, Unavailable(NOT_ANSWERED))
        finally:
            pending.peer.release(limits[1])

    async def _read(self, slices: list[Slice]) -> tuple[list[Slice], list[Buffer]]:
        """What can be read; damaged batches are passed over like removed ones, and said so."""
        try:
            return slices, await self._fetcher.later([piece.entry for piece in slices])
        except Corrupt:
            pass  # One by one, to find out which.
        readable: list[Slice] = []
        batches: list[Buffer] = []
        for piece in slices:
            try:
                batches += await self._fetcher.later([piece.entry])
                readable.append(piece)
            except Corrupt as error:
                log.error(
                    "stored messages cannot be read",
                    sequence=piece.entry.base_sequence,
                    count=piece.entry.count,
                    reason=error.message,
                )
        return readable, batches

    def _send(
        self, pending: PendingRead, slices: list[Slice], batches: list[Buffer], upto: int
    ) -> None:
        buffers: list[Buffer] = [DELIVERED.pack(len(slices), 0, upto)]
        envelopes = Envelopes(0, pending.topic_id)
        for piece, batch in zip(slices, batches, strict=True):
            if pending.columns:
                buffers += _projected(piece, batch, pending)
            else:
                buffers += envelopes.wrap(piece, batch)
        pending.peer.answer(_READ, pending.correlation, *buffers)


def _projected(piece: Slice, batch: Buffer, pending: PendingRead) -> list[Buffer]:
    """The envelope and what is wanted of the batch: columns, and all rows of it."""
    try:
        smaller: Buffer = project(batch, pending.columns)
    except Exception:  # A column that nobody can read: all of it, as it lies there.
        smaller = batch
    head = pack_envelope(
        lease=0,
        lane=pending.topic_id,
        selection=piece.selection,
        attempts=[],
        batch_size=len(smaller),
        flags=0,
    )
    return [head, smaller]


def following(slices: list[Slice], stop: int) -> int:
    """Where the next read goes on."""
    return slices[-1].entry.base_sequence + slices[-1].selection[-1][1] if slices else stop


def choose(entries: list[ConsumeEntry], at: int, stop: int, rows: int, size: int) -> list[Slice]:
    """Rows from `at` to `stop` within the limits; holes are passed over."""
    slices: list[Slice] = []
    for entry in entries:
        base = entry.base_sequence
        at = max(at, base)
        end = min(base + entry.count, stop, at + rows)
        if end <= at or (slices and entry.size > size):
            break
        slices.append(Slice(entry, [(at - base, end - base)], []))
        rows -= end - at
        size -= entry.size
        at = end
        if rows <= 0:
            break
    return slices
