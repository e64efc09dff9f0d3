"""Fetches from a replica the bytes that a master left out of its answers.

A pull of old messages may be answered with leases alone (`LeftOut`): which rows of
which stored batches. Here the bytes are read with READ, from the link that readers use, and put
together with what the master said to what an answer with bytes would have been. Answers come out in
the order in which they came in, those with bytes too, so nothing overtakes.

What cannot be had (no replica, one that is behind or slow, another history, messages whose time is
over) is said to be missing; for a growing while after that nothing shall be left out. Never asks
twice: the caller gives missing rows back to the master, who hands them out with their bytes.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from ternmq.batch.envelope import Envelope, pack_errors, read_envelopes
from ternmq.batch.rows.expiry import expired_rows
from ternmq.client.reading.range_reader import RangeReader
from ternmq.client.transport.link import Link
from ternmq.core.clock import SystemClock
from ternmq.core.errors import ProtocolError, TernError
from ternmq.core.lifecycle import Background
from ternmq.core.log import get_logger
from ternmq.core.range_set import RangeSet
from ternmq.wire.messages.pull import DELIVERED, LeftOut

READ_S = 3.0
REST_S = 1.0
REST_MAX_S = 30.0

log = get_logger()
_left_outs = msgspec.msgpack.Decoder(list[LeftOut])


class Whole(NamedTuple):
    """An answer with all bytes that could be had."""

    envelopes: list[Envelope]
    missing: list[tuple[int, int, int]]
    """Lease, first sequence, end: rows without bytes."""


Took = Callable[["Whole | TernError"], None]


class ReplicaFetch:
    """Completes the answers to the pulls of one subscription."""

    def __init__(self, reader: Link, failed: Callable[[TernError], None]) -> None:
        self._reader = reader
        self._background = Background("a consumer", failed)
        self._loop = asyncio.get_running_loop()
        self._clock = SystemClock()
        self._last: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._rest_s = REST_S
        self._rested_at = 0.0
        self._topics: Mapping[int, str] = {}

    def joined(self, topics: Mapping[int, str]) -> None:
        """The names of the topics that come, by lane."""
        self._topics = topics

    @property
    def wanted(self) -> bool:
        """May the master leave out what is old?"""
        return self._loop.time() >= self._rested_at

    @property
    def busy(self) -> bool:
        """Answers wait for their bytes: others have to come after them."""
        return self._last is not None and not self._last.done()

    def take(self, payload: bytearray, took: Took) -> None:
        """Complete an answer and hand it over, after those that came before."""
        before = self._last if self.busy else None
        task = self._background.task(self._take(payload, took, before), name="tern-left-out")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._last = task

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _take(
        self, payload: bytearray, took: Took, before: "asyncio.Task[None] | None"
    ) -> None:
        try:
            whole: Whole | TernError = await self._complete(payload)
        except TernError as broken:
            whole = broken
        if before is not None:
            await asyncio.wait([before])
        took(whole)

    async def _complete(self, payload: bytearray) -> Whole:
        count, left, _ = DELIVERED.unpack_from(payload)
        if not left:
            return Whole(read_envelopes(payload, count, DELIVERED.size), [])
        try:
            asked = _left_outs.decode(memoryview(payload)[DELIVERED.size :])
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise ProtocolError(f"what was left out of an answer is not clear: {error}") from None
        found: list[Envelope] = []
        try:
            async with asyncio.timeout(READ_S):
                for lane, first, end in _runs(asked):
                    found += await self._read(lane, first, end)
        except (TernError, TimeoutError) as error:
            log.info("a replica does not give old messages", reason=str(error) or "too slow")
        whole = put_together(asked, found, self._clock.now_ms())
        if whole.missing:
            self._complain()
        else:
            self._rest_s = REST_S
        return whole

    def _complain(self) -> None:
        """Leave nothing out for a while."""
        self._rested_at = self._loop.time() + self._rest_s
        self._rest_s = min(2 * self._rest_s, REST_MAX_S)

    async def _read(self, lane: int, first: int, end: int) -> list[Envelope]:
        found: list[Envelope] = []
        pieces = RangeReader(self._reader, self._topics.get(lane, ""))
        while first < end:
            piece = await pieces.read(first, end)
            if piece.following <= first:
                break  # It has no more.
            found += piece.envelopes
            first = piece.following
        return found


def _runs(asked: list[LeftOut]) -> list[tuple[int, int, int]]:
    """Lane, first and end of what lies side by side."""
    runs: list[tuple[int, int, int]] = []
    for one in asked:
        first, end = one.base + one.ranges[0][0], one.base + one.ranges[-1][1]
        if runs and runs[-1][0] == one.lane and runs[-1][2] == first:
            runs[-1] = (one.lane, runs[-1][1], end)
        else:
            runs.append((one.lane, first, end))
    return runs


def put_together(asked: list[LeftOut], found: list[Envelope], now_ms: int) -> Whole:
    """What was asked for, by what was found. Pure."""
    by_lane: dict[int, list[Envelope]] = {}
    for envelope in found:
        by_lane.setdefault(envelope.lane, []).append(envelope)
    whole = Whole([], [])
    for one in asked:
        rows = [row for first, end in one.ranges for row in range(first, end)]
        attempts = dict(zip(rows, one.attempts, strict=True)) if one.attempts else {}
        lacking = RangeSet((one.base + first, one.base + end) for first, end in one.ranges)
        for envelope in by_lane.get(one.lane, ()):
            kept = _kept(one, envelope, lacking, now_ms)
            if not kept:
                continue
            base = envelope.batch.base_sequence
            for first, end in kept:
                lacking.remove(first, end)
            whole.envelopes.append(
                Envelope(
                    lease=one.lease,
                    lane=one.lane,
                    batch=envelope.batch,
                    selection=[(first - base, end - base) for first, end in kept],
                    attempts=[
                        attempts[at - one.base] for first, end in kept for at in range(first, end)
                    ]
                    if attempts
                    else [],
                    whole=envelope.whole,
                    errors=pack_errors(one.errors) if one.errors else b"",
                )
            )
        whole.missing.extend((one.lease, first, end) for first, end in lacking)
    return whole


def _kept(
    one: LeftOut, envelope: Envelope, lacking: RangeSet, now_ms: int
) -> list[tuple[int, int]]:
    """Sequences that a batch of a replica has of those that are still lacking."""
    batch = envelope.batch
    base = batch.base_sequence
    if batch.stored_at_ms != one.stored_at_ms:
        return []  # Another history, or another batch.
    kept = [
        part
        for first, end in envelope.selection
        for part in lacking.overlap(base + first, base + end)
    ]
    if kept:
        over = RangeSet((base + a, base + b) for a, b in expired_rows(batch, now_ms))
        if any(over.overlap(first, end) for first, end in kept):
            return []  # The master says what becomes of those.
    return kept
