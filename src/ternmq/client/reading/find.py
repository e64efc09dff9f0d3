"""`mq.find`: messages by id or by key, wherever they are kept.

Asks every broker group for places and reads each message from its place. Stateless, like `read`. A
broker group that does not answer makes the call fail, since it may be there that the message is;
`missing=` (a dict) takes its name instead, and what the others have is returned.
"""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from ternmq.batch.envelope import read_envelopes
from ternmq.client.admin.topics import topic_exists
from ternmq.client.codecs.codec import find_codec
from ternmq.client.config import ClientConfig
from ternmq.client.model.arguments import check_typed_options, check_value
from ternmq.client.model.delivery import Delivery, NotLeased
from ternmq.client.model.durations import typed
from ternmq.client.model.message import Message
from ternmq.client.model.start import milliseconds
from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.fan_out import AWAY, FanOut, Missing
from ternmq.client.transport.retrying_request import RetryingRequest
from ternmq.core.errors import (
    BadRequest,
    ProtocolError,
    TernError,
    TopicNotFound,
    Unavailable,
)
from ternmq.core.ids import ID_TEXT_SIZE, id_from_text
from ternmq.core.units import MIB
from ternmq.discovery.hidden_topics import DEAD_PREFIX, LANE_PREFIX, REFUSED_PREFIX
from ternmq.wire.messages.publish import FOUND_LIMIT, Find, FoundPlace, FoundPlaces
from ternmq.wire.messages.pull import DELIVERED
from ternmq.wire.messages.read import Read
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack

_NOT_LEASED = NotLeased()


class FindOptions(TypedDict, total=False):
    """The keywords of `find`, for type checkers."""

    id: str | bytes | None
    key: str | None
    start: datetime | None
    end: datetime | None
    limit: int
    missing: Missing | None


@dataclass(frozen=True, slots=True)
class Finding:
    """A message and where it is."""

    message: Message
    broker_group: str
    offset: int
    """Of its batch in the message log."""
    lane: str = "topic"
    """Where it is kept: in its topic, in a group's private lane ("private GROUP"), among the dead
    letters of one ("dead GROUP"), or put aside ("refused"). Sequences count in each anew."""


def _lane(topic: str) -> str:
    """What the name of the topic that keeps a message says to people."""
    if topic.startswith(LANE_PREFIX):
        return f"private {topic.removeprefix(LANE_PREFIX).partition('.')[2]}"
    if topic.startswith(DEAD_PREFIX):
        return f"dead {topic.removeprefix(DEAD_PREFIX)}"
    return "refused" if topic.startswith(REFUSED_PREFIX) else "topic"


def id_bytes(message_id: str | bytes) -> bytes:
    """An id as the broker keeps it; text is the 26 characters of an id, or hex."""
    if isinstance(message_id, bytes):
        return message_id
    if not isinstance(message_id, str) or not message_id:
        raise BadRequest(f"id is {typed(message_id)}; it is a message id: its text, or bytes")
    if len(message_id) == ID_TEXT_SIZE:
        return id_from_text(message_id).to_bytes(16, "big")
    try:
        return bytes.fromhex(message_id)
    except ValueError:
        raise BadRequest(
            f"{message_id!r} is not a message id: it has {ID_TEXT_SIZE} characters, or is hex"
        ) from None


def make_find(topic: str | None, options: FindOptions) -> Find:
    """Check what the caller wants."""
    check_typed_options("find", options, FindOptions, but=("id", "start", "end"))
    check_value("topic", topic, str | None)
    wanted, key = options.get("id"), options.get("key")
    if (wanted is None) == (key is None):
        raise BadRequest("find() takes id= or key=, one of the two")
    start, end = options.get("start"), options.get("end")
    limit = options.get("limit", FOUND_LIMIT)
    if limit < 1:
        raise BadRequest(f"limit is {limit}; it is at least 1")
    return Find(
        topic=topic or "",
        id=None if wanted is None else id_bytes(wanted),
        key=key,
        start_ms=0 if start is None else milliseconds(start, "start"),
        end_ms=0 if end is None else milliseconds(end, "end"),
        limit=limit,
    )


class FindCall:
    """One question to all broker groups."""

    def __init__(self, cluster: Cluster, config: ClientConfig) -> None:
        self._cluster = cluster
        self._config = config
        self._codec = find_codec(config.codec)

    async def run(self, find: Find, missing: Missing | None = None) -> list[Finding]:
        """What was found, stored last first."""
        fan_out = FanOut(self._cluster, missing)
        groups = await fan_out.groups()
        answers = await asyncio.gather(*(self._ask(group, find) for group in groups))
        found: list[tuple[int, Finding]] = []
        silent: Missing = {}
        for group, answer in zip(groups, answers, strict=True):
            if isinstance(answer, Unavailable):
                silent[group] = answer.message
            elif isinstance(answer, TernError):
                raise answer
            else:
                found += answer
        if silent and not (find.id is not None and found):  # An id that is found is all there is.
            fan_out.lack(silent, done=sorted(set(groups) - set(silent)))
        if not found and find.topic:
            await self._must_exist(find.topic)
        found.sort(key=lambda one: one[0], reverse=True)
        return [finding for _, finding in found[: find.limit]]

    async def _must_exist(self, topic: str) -> None:
        """Nothing was found: a misspelt topic is an error, not an empty answer."""
        if not await topic_exists(self._cluster, topic):
            raise TopicNotFound(
                f"there is no topic {topic!r}; leave it out to look in all, 'tern topic list' "
                "shows them"
            )

    async def _ask(self, group: str, find: Find) -> "list[tuple[int, Finding]] | TernError":
        """What one broker group has, with the time it was stored."""
        try:
            if group in self._cluster.away("realtime"):
                return Unavailable(AWAY)
            link = self._cluster.broker(group)
            await link.get()  # Who cannot be reached now is told so now.
            retrying = RetryingRequest(self._config, "find")
            answer = await retrying.ask_record(link, Command.FIND, find, FoundPlaces)
            messages = await asyncio.gather(*(self._read(group, one) for one in answer.places))
        except TernError as error:
            return error
        return [
            (place.stored_at_ms, Finding(message, group, place.offset, _lane(place.topic)))
            for place, message in zip(answer.places, messages, strict=True)
            if message is not None
        ]

    async def _read(self, group: str, place: FoundPlace) -> Message | None:
        """The message at a place; None if it was removed since."""
        read = Read(
            topic=place.topic,
            sequence=place.sequence,
            end=place.sequence + 1,
            rows_max=1,
            size_max=8 * MIB,
        )
        connection = await self._cluster.broker(group).get()
        try:
            async with asyncio.timeout(self._config.request_timeout):
                payload = await connection.call(Command.READ, pack(read))
        except TimeoutError:
            raise Unavailable(f"the broker group {group!r} did not answer in time") from None
        if len(payload) < DELIVERED.size:
            raise ProtocolError("the answer to a read is cut off")
        for envelope in read_envelopes(payload, DELIVERED.unpack_from(payload)[0], DELIVERED.size):
            envelope.batch.check()
            delivery = Delivery(envelope, _NOT_LEASED, self._codec, broker_group=group)
            await self._cluster.keyring.open_all([(delivery.batch, delivery.ranges)])
            for first, _ in delivery.ranges:
                return Message(delivery, first)
        return None
