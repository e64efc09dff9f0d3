"""`mq.read`: a topic from one place to another, without a group.

Stateless: the broker keeps nothing, so reading neither disturbs nor is disturbed by groups, and the
same messages can be read any number of times. Reads one broker group (the first, or the one named).
While messages are shown, the next piece is already asked for.
"""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import TypedDict

from ternmq.client.admin import plain_name, topic_missing
from ternmq.client.codec import Codec, CodecName, find_codec
from ternmq.client.config import ClientConfig, nearest_text
from ternmq.client.delivery import Delivery, NotLeased
from ternmq.client.link import Link
from ternmq.client.links import Links
from ternmq.client.message import Message, MessageBatch
from ternmq.client.pieces import ENDLESS, Pieces
from ternmq.client.start import StartLike, make_start
from ternmq.core.errors import BadRequest, TopicNotFound
from ternmq.core.ids import check_name
from ternmq.wire.commands import Command, Seek, Sought

WAIT_MS = 5_000

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
        check_name("topic", plain_name(topic))
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
        bounds = await self._bounds(link)
        pieces = Pieces(link, self._topic, wait_ms=WAIT_MS if self._follow else 0)
        async for piece in pieces.walk(*bounds):
            for envelope in piece.envelopes:
                delivery = Delivery(envelope, _NOT_LEASED, self._codec)
                for first, stop in delivery.ranges:
                    yield MessageBatch([(delivery, first, stop)])

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
