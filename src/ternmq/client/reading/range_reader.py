"""Reads a range of a topic's sequences page by page, one READ after the other.

While a piece is being looked at, the next one is already asked for; never more than one ahead. A
lost connection is opened again, since reading twice does no harm; so is one to a server that does
not lead any more. `columns` leaves the others at the broker. Nothing is leased, the broker keeps
nothing of a reader.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from ternmq.batch.envelope import Envelope, read_envelopes
from ternmq.client.transport.attempts import Attempts
from ternmq.client.transport.link import Link
from ternmq.core.errors import NotMaster, ProtocolError, Unavailable
from ternmq.core.units import MIB
from ternmq.wire.messages.pull import DELIVERED
from ternmq.wire.messages.read import Read
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack

ROWS_MAX = 8192
SIZE_MAX = 2 * MIB
RETRIES_S = 60.0
ENDLESS = 2**63


class Page(NamedTuple):
    """What one READ answered."""

    envelopes: list[Envelope]
    following: int
    """Where the next read goes on."""


class RangeReader:
    """Reads of one topic from one broker group."""

    def __init__(
        self,
        link: Link,
        topic: str,
        *,
        wait_ms: int = 0,
        columns: Sequence[int] = (),
        rows_max: int = ROWS_MAX,
        for_ever: bool = False,
        stalls: bool = False,
    ) -> None:
        """`stalls`: a wait for more that brings nothing is the end, whatever was asked for."""
        self._stalls = stalls
        self._link = link
        self._topic = topic
        self._wait_ms = wait_ms
        self._columns = list(columns)
        self._rows_max = rows_max
        self._retries_s = math.inf if for_ever else RETRIES_S

    async def walk(self, sequence: int, end: int) -> AsyncGenerator[Page, None]:
        """Pieces until `end`, or for ever where that is `ENDLESS`."""
        ahead = self._ask(sequence, end) if sequence < end else None
        try:
            while ahead is not None:
                piece = await ahead
                ahead = None
                if piece.following <= sequence and (self._stalls or not self._wait_ms):
                    return  # The rest was removed meanwhile, or is not there yet.
                sequence = max(sequence, piece.following)
                if sequence < end:
                    ahead = self._ask(sequence, end)
                yield piece
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.wait([ahead])

    def _ask(self, sequence: int, end: int) -> "asyncio.Task[Page]":
        return asyncio.create_task(self.read(sequence, end), name="tern-read")

    async def read(self, sequence: int, end: int) -> Page:
        """One piece from `sequence` on."""
        read = Read(
            topic=self._topic,
            sequence=sequence,
            rows_max=self._rows_max,
            size_max=SIZE_MAX,
            wait_ms=self._wait_ms,
            end=0 if end == ENDLESS else end,
            columns=self._columns,
        )
        payload = await self._call(pack(read))
        if len(payload) < DELIVERED.size:
            raise ProtocolError("the answer to a read is cut off")
        count, _, following = DELIVERED.unpack_from(payload)
        envelopes = read_envelopes(payload, count, DELIVERED.size)
        for envelope in envelopes:
            envelope.batch.check()
        return Page(envelopes, following)

    async def _call(self, request: bytes) -> memoryview:
        attempts = Attempts(self._retries_s)
        while True:
            try:
                connection = await self._link.get()
                return memoryview(await connection.call(Command.READ, request))
            except (NotMaster, Unavailable) as error:
                await attempts.failed(error)
