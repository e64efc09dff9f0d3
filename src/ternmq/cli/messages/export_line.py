"""A line of an export: one message, or what stands before and after them, as JSON.

    {"tern_export": 1, "topics": {NAME: SETTINGS, …}}         first; settings as they travel
    {"topic": …, "id": …, "body": BASE64, "born_at_ms": …}    for each message; what it has not is
                                                              left out: key, tag, order_key,
                                                              priority, expire_at_ms, properties
    {"end": {NAME: COUNT, …}}                                 last: without it the file is not whole

Properties are [type, text] as a batch has them: JSON has neither bytes nor large integers. Never
guesses: a line that is none of these is refused, with its number.
"""

import base64
import binascii
from typing import Any

import msgspec

from ternmq.batch.encoder import Outgoing
from ternmq.batch.properties import value_from_text, value_to_text
from ternmq.client.model.message import Message
from ternmq.core.errors import BadRequest, TernError
from ternmq.core.ids import ID_TEXT_SIZE, id_from_text
from ternmq.wire.messages.topics import TopicSettings

VERSION = 1


class ExportHead(msgspec.Struct, frozen=True, kw_only=True):
    tern_export: int
    topics: dict[str, TopicSettings] = {}


class ExportedMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    topic: str
    id: str
    body: str
    born_at_ms: int
    key: str | None = None
    tag: str | None = None
    order_key: str | None = None
    priority: int = 0
    expire_at_ms: int | None = None
    properties: dict[str, tuple[int, str]] = {}
    trace: str | None = None


class ExportEnd(msgspec.Struct, frozen=True, kw_only=True):
    end: dict[str, int]


_first = msgspec.json.Decoder(ExportHead)
_message = msgspec.json.Decoder(ExportedMessage)
_end = msgspec.json.Decoder(ExportEnd)


def head_line(topics: dict[str, TopicSettings]) -> bytes:
    return msgspec.json.encode(ExportHead(tern_export=VERSION, topics=topics)) + b"\n"


def message_line(message: Message) -> bytes:
    expires = message.expires_at
    line = ExportedMessage(
        topic=message.topic,
        id=message.id,
        body=base64.b64encode(message.body).decode(),
        born_at_ms=round(message.born_at.timestamp() * 1000),
        key=message.key,
        tag=message.tag,
        order_key=message.order_key,
        priority=message.priority,
        expire_at_ms=None if expires is None else round(expires.timestamp() * 1000),
        properties={name: _text(value) for name, value in message.properties.items()},
        trace=message.trace,
    )
    return msgspec.json.encode(line) + b"\n"


def end_line(counts: dict[str, int]) -> bytes:
    return msgspec.json.encode(ExportEnd(end=counts)) + b"\n"


def read_line(number: int, line: bytes) -> ExportHead | ExportedMessage | ExportEnd:
    """Raises `BadRequest` with the number of a line that is not of an export."""
    try:
        if number > 1:
            ended = line.startswith(b'{"end":')
            return (_end if ended else _message).decode(line)
        head = _first.decode(line)
    except msgspec.MsgspecError as error:
        raise BadRequest(f"line {number} is not a line of an export: {error}") from error
    if head.tern_export != VERSION:
        raise BadRequest(
            f"this export has version {head.tern_export}, this release reads {VERSION}"
        )
    return head


def at_home_anywhere(settings: TopicSettings) -> TopicSettings:
    """Without the names of broker groups, which are others elsewhere."""
    return msgspec.structs.replace(settings, broker_groups=0, on_groups=[], placement=None)


def outgoing(number: int, line: ExportedMessage) -> Outgoing:
    """As `send_once` takes it: with the id that it had."""
    try:
        return Outgoing(
            body=base64.b64decode(line.body, validate=True),
            key=line.key,
            tag=line.tag,
            order_key=line.order_key,
            priority=line.priority,
            expire_at_ms=line.expire_at_ms,
            born_at_ms=line.born_at_ms,
            properties={
                name: value_from_text(kind, text.encode())
                for name, (kind, text) in line.properties.items()
            }
            or None,
            explicit_id=_id(line.id),
            trace=line.trace,
        )
    except (binascii.Error, ValueError, TernError) as error:
        raise BadRequest(f"line {number} is not a message: {error}") from error


def _text(value: Any) -> tuple[int, str]:
    kind, text = value_to_text(value)
    return kind, text.decode()


def _id(text: str) -> bytes:
    """Ids of our own have 26 characters; others are shown as hexadecimal digits."""
    if len(text) == ID_TEXT_SIZE:
        return id_from_text(text).to_bytes(16, "big")
    return bytes.fromhex(text)
