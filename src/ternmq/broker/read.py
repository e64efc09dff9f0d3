"""Stateless reading by sequence: browse, replay, broadcast, Spark. No lease, no trace of a reader.

Answers whole batches from the given sequence on, the first one cut where it begins earlier. Only
what is safe is seen. A reader at the end may wait for more.
"""

import asyncio

from ternmq.batch.layout import Buffer
from ternmq.broker.deliver import SIZE_MAX, Slice, enveloped
from ternmq.broker.fetch import Fetcher
from ternmq.core.errors import Closed, TernError
from ternmq.rpc.peer import Peer
from ternmq.storage.consume_log import ConsumeLog
from ternmq.wire.commands import DELIVERED, Command, Read

_READ = int(Command.READ)
ROWS_MAX = 100_000
WAIT_MAX_MS = 30_000


class Reader:
    """The READ command."""

    def __init__(self, *, consume: ConsumeLog, fetcher: Fetcher) -> None:
        self._consume = consume
        self._fetcher = fetcher
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, dict[tuple[Peer, int], tuple[Read, asyncio.TimerHandle]]] = {}
        self._reading: set[asyncio.Task[None]] = set()

    def read(self, peer: Peer, correlation: int, topic_id: int, request: Read) -> None:
        """Answer now if there is something, else when there is, else after `wait_ms`."""
        if self._serve(peer, correlation, topic_id, request):
            return
        key = (peer, correlation)
        wait_s = min(request.wait_ms, WAIT_MAX_MS) / 1000
        timer = self._loop.call_later(wait_s, self._expire, topic_id, key)
        self._waiting.setdefault(topic_id, {})[key] = (request, timer)

    def grew(self, topic_id: int) -> None:
        """More messages of a topic are safe."""
        for (peer, correlation), (request, timer) in self._waiting.pop(topic_id, {}).items():
            timer.cancel()
            if not peer.closed:
                self.read(peer, correlation, topic_id, request)

    def refuse(self, topic_id: int, error: TernError) -> None:
        """The topic is gone."""
        for (peer, correlation), (_, timer) in self._waiting.pop(topic_id, {}).items():
            timer.cancel()
            peer.fail(_READ, correlation, error)

    def stop(self) -> None:
        for topic_id in list(self._waiting):
            self.refuse(topic_id, Closed("the broker is stopping; connect again in a moment"))

    def _expire(self, topic_id: int, key: tuple[Peer, int]) -> None:
        waiting = self._waiting.get(topic_id, {})
        request, _ = waiting.pop(key)
        if not waiting:
            self._waiting.pop(topic_id, None)
        key[0].answer(_READ, key[1], DELIVERED.pack(0, 0, request.sequence))

    def _serve(self, peer: Peer, correlation: int, topic_id: int, request: Read) -> bool:
        first, end = self._consume.bounds(topic_id)
        stop = min(end, request.end) if request.end else end
        at = max(request.sequence, first)
        if at >= stop:
            if request.wait_ms > 0 and not (request.end and at >= request.end):
                return False
            peer.answer(_READ, correlation, DELIVERED.pack(0, 0, at))
            return True
        slices = self._choose(topic_id, at, stop, request)
        entries = [piece.entry for piece in slices]
        last = slices[-1].entry.base_sequence + slices[-1].selection[-1][1] if slices else stop
        batches = self._fetcher.now(entries)
        if batches is not None:
            self._send(peer, correlation, topic_id, slices, batches, last)
            return True
        task = self._loop.create_task(self._send_later(peer, correlation, topic_id, slices, last))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)
        return True

    def _choose(self, topic_id: int, at: int, stop: int, request: Read) -> list[Slice]:
        rows_left = min(max(request.rows_max, 1), ROWS_MAX)
        size_left = min(max(request.size_max, 1), SIZE_MAX)
        slices: list[Slice] = []
        for entry in self._consume.entries(topic_id, at, rows_max=rows_left, size_max=size_left):
            base = entry.base_sequence
            at = max(at, base)
            end = min(base + entry.count, stop, at + rows_left)
            if end <= at or (slices and entry.size > size_left):
                break
            slices.append(Slice(entry, [(at - base, end - base)], []))
            rows_left -= end - at
            size_left -= entry.size
            at = end
            if rows_left <= 0:
                break
        return slices

    async def _send_later(
        self, peer: Peer, correlation: int, topic_id: int, slices: list[Slice], last: int
    ) -> None:
        try:
            batches = await self._fetcher.later([piece.entry for piece in slices])
        except TernError as error:
            peer.fail(_READ, correlation, error)
            return
        self._send(peer, correlation, topic_id, slices, batches, last)

    def _send(
        self,
        peer: Peer,
        correlation: int,
        topic_id: int,
        slices: list[Slice],
        batches: list[Buffer],
        last: int,
    ) -> None:
        buffers: list[Buffer] = [DELIVERED.pack(len(slices), 0, last)]
        for piece, batch in zip(slices, batches, strict=True):
            buffers += enveloped(piece, batch, 0, topic_id)
        peer.answer(_READ, correlation, *buffers)
