"""A message as a RocketMQ client sends it, checked, as an `Outgoing`.

Checks and codes are those that the clients' own tests ask for. What TernMQ has no field for (the
kind, more than one key, the host that sent it, a trace context, the delivery time that was asked
for) goes along in one reserved property, so that it comes back as it was sent. Pure.
"""

import zlib
from dataclasses import dataclass
from typing import Any

import msgspec

from ternmq.batch.encoder import Outgoing
from ternmq.gateway.protocol.codes import Code, Refused
from ternmq.gateway.protocol.enums import Encoded, MessageKind
from ternmq.gateway.protocol.message_ids import explicit_id
from ternmq.gateway.protocol.spans import span_ms

RESERVED = "rocketmq"
"""The property with what has no place of its own."""
RESERVED_NAMES = {
    RESERVED,
    "BUYER_ID",
    "CLUSTER",
    "CONSUME_START_TIME",
    "CORRECTION_FLAG",
    "DELAY",
    "INSTANCE_ID",
    "KEYS",
    "MAX_OFFSET",
    "MIN_OFFSET",
    "MQ2_FLAG",
    "MSG_REGION",
    "MSG_TYPE",
    "ORIGIN_MESSAGE_ID",
    "PGROUP",
    "REAL_QID",
    "REAL_TOPIC",
    "RECONSUME_TIME",
    "RETRY_TOPIC",
    "TAGS",
    "TRACE_ON",
    "TRANSFER_FLAG",
    "TRAN_MSG",
    "UNIQ_KEY",
    "WAIT",
}
"""Properties that RocketMQ itself writes."""
BODY_SIZE_MAX = 4 * 1024 * 1024 - 64 * 1024
"""Told to clients: with its properties a message still fits the 4 MiB that some of them read."""
PROPERTIES_MAX = 128
PROPERTIES_SIZE_MAX = 16 * 1024
TEXT_SIZE_MAX = 1024
KEYS_MAX = 64
PRIORITY_MAX = 255
KINDS = {int(kind): kind for kind in MessageKind}
_written = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingMessage:
    """One message to be stored."""

    kind: MessageKind
    row: Outgoing
    message_id: str
    """As the client wrote it."""
    recovery_ms: int = 0
    """Of a half message: how long the producer wants to be left alone; 0: it does not say."""


def read_incoming(message: Any, *, now_ms: int, delay_ms_max: int) -> IncomingMessage:
    """Check one message of a client; raises `Refused` with the code that it expects."""
    system = message.system_properties
    kind = _kind(system)
    body = _body(message.body, system.body_encoding)
    tag = _tag(system)
    keys = _keys(system)
    properties = _properties(message.user_properties, tag, keys)
    noted = _noted(system, kind, keys)
    if noted:
        properties[RESERVED] = _written.encode(noted).decode()
    row = Outgoing(
        body=body,
        key=keys[0] if keys else None,
        tag=tag,
        properties=properties or None,
        order_key=_order_key(system, kind),
        priority=_priority(system, kind),
        due_at_ms=_due(system, kind, now_ms, delay_ms_max),
        born_at_ms=_born(system, now_ms),
        explicit_id=explicit_id(system.message_id),
    )
    recovery_ms = 0
    if kind is MessageKind.TRANSACTION:
        recovery_ms = max(0, span_ms(system.orphaned_transaction_recovery_duration))
    return IncomingMessage(
        kind=kind, row=row, message_id=system.message_id, recovery_ms=recovery_ms
    )


def _kind(system: Any) -> MessageKind:
    kind = KINDS.get(system.message_type or MessageKind.NORMAL, MessageKind.LITE)
    if kind is MessageKind.LITE:
        raise Refused(Code.UNSUPPORTED, "lite topics are not served by this gateway")
    lacking = (kind is MessageKind.FIFO and not system.HasField("message_group")) or (
        kind is MessageKind.DELAY and not system.HasField("delivery_timestamp")
    )
    if lacking:
        raise Refused(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"a message of type {kind.name} needs the field that makes it one",
        )
    return kind


def _body(body: bytes, encoding: int) -> bytes:
    if encoding == Encoded.GZIP:
        body = _unzipped(body)
    if not body:
        raise Refused(Code.MESSAGE_BODY_EMPTY, "a body has at least one byte")
    if len(body) > BODY_SIZE_MAX:
        raise Refused(
            Code.MESSAGE_BODY_TOO_LARGE, f"a body of {len(body)} bytes; at most {BODY_SIZE_MAX}"
        )
    return body


def _unzipped(body: bytes) -> bytes:
    unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        found = unzip.decompress(body, BODY_SIZE_MAX + 1)
    except zlib.error as error:
        raise Refused(Code.BAD_REQUEST, f"the body is not gzip as it says: {error}") from None
    if not unzip.eof and len(found) <= BODY_SIZE_MAX:
        raise Refused(Code.BAD_REQUEST, "the body is gzip that was cut off")
    return found


def _tag(system: Any) -> str | None:
    if not system.HasField("tag") or not system.tag:
        return None
    if not _plain(system.tag) or "|" in system.tag:
        raise Refused(
            Code.ILLEGAL_MESSAGE_TAG, "a tag has no blank edges, no '|', no control characters"
        )
    return _short("tag", str(system.tag))


def _keys(system: Any) -> list[str]:
    keys = list(system.keys)
    if not all(_plain(key) for key in keys) or len(keys) > KEYS_MAX:
        raise Refused(
            Code.ILLEGAL_MESSAGE_KEY, f"at most {KEYS_MAX} keys, none blank or with controls"
        )
    return [_short("key", key) for key in keys]


def _short(name: str, text: str) -> str:
    if len(text.encode()) > TEXT_SIZE_MAX:
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE, f"a {name} has at most {TEXT_SIZE_MAX} bytes here"
        )
    return text


def _properties(given: Any, tag: str | None, keys: list[str]) -> dict[str, Any]:
    size = len((tag or "").encode()) + sum(len(key.encode()) for key in keys)
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in RESERVED_NAMES or not _plain(name):
            raise Refused(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"a property cannot be called {name!r}"
            )
        if not _without_controls(value):
            raise Refused(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property {name!r} has control characters"
            )
        found[name] = value
        size += len(name.encode()) + len(value.encode())
    if len(found) > PROPERTIES_MAX or size > PROPERTIES_SIZE_MAX:
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"{len(found)} properties of {size} bytes with tag and keys; at most {PROPERTIES_MAX} "
            f"and {PROPERTIES_SIZE_MAX}",
        )
    return found


def _noted(system: Any, kind: MessageKind, keys: list[str]) -> dict[str, Any]:
    noted: dict[str, Any] = {}
    if kind is not MessageKind.NORMAL:
        noted["type"] = int(kind)
    if len(keys) > 1:
        noted["keys"] = keys
    if system.born_host:
        noted["host"] = system.born_host[:TEXT_SIZE_MAX]
    if system.HasField("trace_context"):
        noted["trace"] = system.trace_context[:TEXT_SIZE_MAX]
    if kind is MessageKind.DELAY:
        noted["due"] = span_ms(system.delivery_timestamp)
    return noted


def _order_key(system: Any, kind: MessageKind) -> str | None:
    if kind is not MessageKind.FIFO:
        return None
    if not _plain(system.message_group) or len(system.message_group.encode()) > TEXT_SIZE_MAX:
        raise Refused(
            Code.ILLEGAL_MESSAGE_GROUP,
            f"a message group has 1 to {TEXT_SIZE_MAX} bytes, no blank edges, no controls",
        )
    return str(system.message_group)


def _priority(system: Any, kind: MessageKind) -> int:
    if kind is not MessageKind.PRIORITY:
        return 0
    if system.priority < 0:
        raise Refused(Code.BAD_REQUEST, f"priority is {system.priority}; it is 0 or more")
    return min(PRIORITY_MAX, int(system.priority))


def _due(system: Any, kind: MessageKind, now_ms: int, delay_ms_max: int) -> int | None:
    if kind is not MessageKind.DELAY:
        return None
    due_ms = span_ms(system.delivery_timestamp)
    if due_ms - now_ms > delay_ms_max:
        raise Refused(
            Code.ILLEGAL_DELIVERY_TIME,
            f"it is due {(due_ms - now_ms) // 1000} s from now; at most {delay_ms_max // 1000}",
        )
    return max(1, due_ms)


def _born(system: Any, now_ms: int) -> int:
    born_ms = span_ms(system.born_timestamp)
    return born_ms if 0 < born_ms < 2**42 else now_ms


def _plain(text: str) -> bool:
    return bool(text) and text == text.strip() and _without_controls(text)


def _without_controls(text: str) -> bool:
    return text.isprintable() or not any(
        ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in text
    )
