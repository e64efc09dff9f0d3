"""A kombu message as the body of one of ours, and how it is to be sent. Pure.

The body is MessagePack of kombu's own dictionary (headers, properties, body as it is, without
base64). A task's id becomes the key, so that `tern find --key TASK` finds it; an ETA becomes the
moment at which the delay server hands it out, so that no worker holds it until then.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec

from ternmq.client.model.outgoing import TEXT_SIZE_MAX, SendOptions
from ternmq.core.errors import DecodeError

PRIORITY_MAX = 255
KombuMessage = dict[str, Any]


def pack_payload(message: KombuMessage) -> bytes:
    return msgspec.msgpack.encode(message)


def unpack_payload(body: bytes) -> KombuMessage:
    """Raises `DecodeError` for what no kombu has sent."""
    try:
        found = msgspec.msgpack.decode(body)
    except msgspec.DecodeError as error:
        raise DecodeError(f"this is no message of kombu: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("properties"), dict):
        raise DecodeError("this is no message of kombu: it has no properties")
    found.setdefault("headers", {})
    found.setdefault("body", "")
    return found


def options_of(message: KombuMessage, now: datetime) -> SendOptions:
    """Key, order key, priority and moment of a message."""
    headers, properties = message.get("headers") or {}, message["properties"]
    options: SendOptions = {}
    if isinstance(task := headers.get("id"), str) and 0 < len(task.encode()) <= TEXT_SIZE_MAX:
        options["key"] = task
    if isinstance(order_key := headers.get("order_key"), str) and order_key:
        options["order_key"] = order_key
    priority = properties.get("priority")
    if isinstance(priority, int) and priority > 0:
        options["priority"] = min(priority, PRIORITY_MAX)
    if "task" not in headers and (ttl := _seconds(properties.get("expiration"))) is not None:
        options["ttl"] = ttl  # Of a task that has expired the worker has to say so.
    at = _moment(headers.get("eta"))
    if at is not None and at > now:
        options["at"] = at
    return options


def _seconds(expiration: object) -> float | None:
    """AMQP has milliseconds as text."""
    if isinstance(expiration, str) and expiration.isdigit():
        return max(int(expiration), 1) / 1000
    return None


def _moment(eta: object) -> datetime | None:
    """None where there is none, or where its zone is only known to the worker."""
    if not isinstance(eta, str):
        return None
    try:
        at = datetime.fromisoformat(eta)
    except ValueError:
        return None
    return at.astimezone(UTC) if at.tzinfo is not None else None
