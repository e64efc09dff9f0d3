"""One message outside of a batch: all that `send` takes, in a column of the outbox or in the spool.

MessagePack of an array that starts with a version, so that a relay can refuse what a newer
application wrote instead of sending half of it. The order hash stands for topic and order key where
rows are compared: a number sorts and indexes alike in every database, text does not. Pure.
"""

from hashlib import blake2b

import msgspec

from ternmq.batch.encoder import Outgoing
from ternmq.batch.properties import value_from_text, value_to_text
from ternmq.core.errors import Corrupt
from ternmq.core.ids import id_from_text

VERSION = 1
WITH_SUBJECT = 2
"""Has a subject: a relay that does not know it would encrypt under a key that is not erased."""


class StoredMessage(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The fields of `Outgoing`; new ones go to the end and have a default."""

    version: int = VERSION
    body: bytes = b""
    key: str | None = None
    tag: str | None = None
    properties: list[tuple[str, int, bytes]] | None = None
    """Name, type and text of each, as in a batch: MessagePack has no large integers."""
    order_key: str | None = None
    priority: int = 0
    expire_at_ms: int | None = None
    due_at_ms: int | None = None
    born_at_ms: int = 0
    subject: str | None = None
    trace: str | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StoredMessage)


def pack(message: Outgoing) -> bytes:
    """The bytes of a checked message."""
    properties = [
        (name, *value_to_text(value)) for name, value in (message.properties or {}).items()
    ]
    return _encoder.encode(
        StoredMessage(
            version=VERSION if message.subject is None else WITH_SUBJECT,
            body=message.body,
            key=message.key,
            tag=message.tag,
            properties=properties or None,
            order_key=message.order_key,
            priority=message.priority,
            expire_at_ms=message.expire_at_ms,
            due_at_ms=message.due_at_ms,
            born_at_ms=message.born_at_ms,
            subject=message.subject,
            trace=message.trace,
        )
    )


def unpack(data: bytes, message_id: str) -> Outgoing:
    """The message as a relay sends it when it is due; `Corrupt` when these bytes are not ours."""
    content = read(data, message_id)
    properties = {
        name: value_from_text(kind, text) for name, kind, text in content.properties or ()
    }
    return Outgoing(
        body=content.body,
        key=content.key,
        tag=content.tag,
        properties=properties or None,
        order_key=content.order_key,
        priority=content.priority,
        expire_at_ms=content.expire_at_ms,
        born_at_ms=content.born_at_ms,
        explicit_id=id_from_text(message_id).to_bytes(16, "big"),
        subject=content.subject,
        trace=content.trace,
    )


def read(data: bytes, message_id: str) -> StoredMessage:
    """Everything in the column; `Corrupt` when these bytes are not ours."""
    try:
        content = _decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise Corrupt(f"the content of message {message_id} cannot be read: {error}") from error
    if content.version not in (VERSION, WITH_SUBJECT):
        raise Corrupt(
            f"message {message_id} has content version {content.version}; this release reads "
            f"{VERSION} and {WITH_SUBJECT}: update the relay before the applications"
        )
    return content


def order_hash(topic: str, order_key: str | None) -> int | None:
    """A signed 64-bit number for a topic's order key; two that share one only wait longer."""
    if order_key is None:
        return None
    digest = blake2b(f"{topic}\0{order_key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
