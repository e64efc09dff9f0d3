"""`mq.read`: a topic from one place to another, without a group.

Stateless: the broker keeps nothing, so reading neither disturbs nor is disturbed by groups, and the
same messages can be read any number of times. Reads one broker group (the first, or the one named).
While messages are shown, the next piece is already asked for.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import TypedDict

from ternmq.batch.envelope import read_envelopes
from ternmq.client.admin import DEAD_PREFIX, topic_missing
from ternmq.client.codec import Codec, CodecName, find_codec
from ternmq.client.config import ClientConfig, nearest_text
from ternmq.client.delivery import Delivery, NotLeased
from ternmq.client.link import Link, back_off
from ternmq.client.links import Links
from ternmq.client.message import Message, MessageBatch
from ternmq.client.start import StartLike, make_start
from ternmq.core.errors import BadRequest, ProtocolError, TopicNotFound, Unavailable
from ternmq.core.ids import check_name
from ternmq.core.units import MIB
from ternmq.wire.commands import DELIVERED, Command, Read, Seek, Sought, pack

ROWS_MAX = 8192
SIZE_MAX = 2 * MIB
WAIT_MS = 5_000
RETRIES_S = 60.0
ENDLESS = 2**63

_NOT_LEASED = NotLeased()


class ReadOptions(TypedDict, total=False):
    """The keywords of `read`, for type checkers."""

    start: StartLike
    end: int | datetime | None
    follow: bool
    codec: Codec | CodecName | None
    broker_group: str


class Reader:
    """Messages in order: iterate over it, or over `.batches()`."""

    def __init__(
        self, links: Links, topic: str, options: ReadOptions, config: ClientConfig
    ) -> None:
        known = sorted(ReadOptions.__annotations__)
        for name in options:
            if name not in known:
                raise BadRequest(f"read() has no option {name!r}; {nearest_text(name, known)}")
        self._links = links
        check_name("topic", topic.removeprefix(DEAD_PREFIX))
        self._topic = topic
        self._start = make_start(options.get("start", "earliest"))
        self._end = options.get("end")
        self._follow = options.get("follow", False)
        if self._follow and self._end is not None:
            raise BadRequest("read() goes either to an end or follows, not both")
        self._broker_group = options.get("broker_group", "")
        self._codec = find_codec(options.get("codec") or config.codec)

    async def __aiter__(self) -> AsyncIterator[Message]:
        async for batch in self.batches():
            for message in batch:
                yield message

    async def batches(self) -> AsyncIterator[MessageBatch]:
        """The same in pieces, as they are stored."""
        group = self._broker_group or (await self._links.some_masters())[0]
        link = self._links.broker(group)
        sequence, end = await self._bounds(link)
        while sequence < end:
            deliveries, following = await self._read(link, sequence, end)
            for delivery in deliveries:
                for first, stop in delivery.ranges:
                    yield MessageBatch([(delivery, first, stop)])
            if following <= sequence and not self._follow:
                return  # The rest was removed meanwhile.
            sequence = max(sequence, following)

    async def _bounds(self, link: Link) -> tuple[int, int]:
        """First sequence and end; without an end, what is there now, or endless."""
        sought = await self._seek(link, self._start)
        if self._follow:
            return sought.sequence, ENDLESS
        if self._end is None:
            return sought.sequence, sought.end
        if isinstance(self._end, int):
            return sought.sequence, min(self._end, sought.end)
        return sought.sequence, (await self._seek(link, self._end)).sequence

    async def _seek(self, link: Link, start: StartLike) -> Sought:
        seek = Seek(topic=self._topic, start=make_start(start))
        try:
            return await self._links.ask(link, Command.SEEK, seek, Sought)
        except TopicNotFound as error:
            raise topic_missing(self._topic, error) from None

    async def _read(self, link: Link, sequence: int, end: int) -> tuple[list[Delivery], int]:
        """One piece; a lost connection is opened again, since reading twice does no harm."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + RETRIES_S
        read = Read(
            topic=self._topic,
            sequence=sequence,
            rows_max=ROWS_MAX,
            size_max=SIZE_MAX,
            wait_ms=WAIT_MS if self._follow else 0,
            end=0 if end == ENDLESS else end,
        )
        failures = 0
        while True:
            try:
                connection = await link.get()
                payload = await connection.call(Command.READ, pack(read))
                break
            except Unavailable:
                failures += 1
                if loop.time() > give_up:
                    raise
                await asyncio.sleep(back_off(failures))
        if len(payload) < DELIVERED.size:
            raise ProtocolError("the answer to a read is cut off")
        count, _, following = DELIVERED.unpack_from(payload)
        deliveries: list[Delivery] = []
        for envelope in read_envelopes(payload, count, DELIVERED.size):
            envelope.batch.check()
            deliveries.append(Delivery(envelope, _NOT_LEASED, self._codec))
        return deliveries, following
