"""Messages out of the body of a request: JSON, NDJSON, raw bytes, CloudEvents 1.0.

Everything is hostile: unknown fields, wrong types, two bodies at once are refused with the row that
is wrong. Binary CloudEvents have their attributes in `ce-…` headers, structured and batched ones in
the JSON itself: id -> the message's own id, type -> tag, subject -> key, time -> born, the rest ->
properties.
"""

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import msgspec

from ternmq.batch.encoder import Outgoing
from ternmq.client.model.outgoing import check_outgoing
from ternmq.client.model.times import TIME_MAX_MS
from ternmq.core.errors import BadRequest
from ternmq.core.units import MIB

ENVELOPE_SIZE_MAX = 32 * MIB
ROWS_MAX = 10_000
DELAY_MS_MAX = 2 * 366 * 86_400_000
EVENT_SINGLE = "application/cloudevents+json"
EVENT_BATCH = "application/cloudevents-batch+json"
NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl")
PROPERTY = "tern-property-"
JsonValue = str | int | float | bool


class SentMessage(msgspec.Struct, forbid_unknown_fields=True):
    """One message as a program writes it: exactly one of `text`, `json`, `base64`."""

    text: str | msgspec.UnsetType = msgspec.UNSET
    json: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    base64: str | msgspec.UnsetType = msgspec.UNSET
    id: str | None = None
    key: str | None = None
    tag: str | None = None
    order_key: str | None = None
    properties: dict[str, JsonValue] | None = None
    priority: int = 0
    delay_ms: int = 0


class SentMessages(msgspec.Struct, forbid_unknown_fields=True):
    messages: list[SentMessage]


_MANY = msgspec.json.Decoder(SentMessages)
_ONE = msgspec.json.Decoder(SentMessage)


def read_messages(headers: Mapping[str, str], body: bytes) -> list[Outgoing]:
    """What a request brings; raises `BadRequest` that names the row."""
    form = headers.get("content-type", "").partition(";")[0].strip().lower()
    if form == EVENT_SINGLE:
        rows = [_event(_json(body))]
    elif form == EVENT_BATCH:
        events = _json(body)
        if not isinstance(events, list):
            raise BadRequest("a batch of CloudEvents is a JSON array")
        rows = [_event(each) for each in events]
    elif headers.get("ce-specversion"):
        rows = [_binary_event(headers, body)]
    elif form == "application/json":
        rows = [_outgoing(at, each) for at, each in enumerate(_decoded(_MANY, body).messages)]
    elif form in NDJSON:
        lines = [line for line in body.splitlines() if line.strip()]
        rows = [_outgoing(at, _decoded(_ONE, line)) for at, line in enumerate(lines)]
    else:
        rows = [_raw(headers, body)]
    if not 1 <= len(rows) <= ROWS_MAX:
        raise BadRequest(f"{len(rows)} messages; a request has 1 to {ROWS_MAX}")
    return [check_outgoing(row) for row in rows]


def _decoded(decoder: "msgspec.json.Decoder[Any]", body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not as it should be: {error}") from None


def _json(body: bytes) -> Any:
    return _decoded(msgspec.json.Decoder(), body)


def _outgoing(at: int, sent: SentMessage) -> Outgoing:
    bodies = [each for each in (sent.text, sent.json, sent.base64) if each is not msgspec.UNSET]
    if len(bodies) != 1:
        raise BadRequest(f"message {at} has {len(bodies)} bodies: write one of text, json, base64")
    if isinstance(sent.text, str):
        body = _utf8(sent.text)
    elif isinstance(sent.json, msgspec.Raw):
        body = bytes(sent.json)
    else:
        try:
            body = base64.b64decode(str(sent.base64), validate=True)
        except (binascii.Error, ValueError):
            raise BadRequest(f"message {at}: base64 is not base64") from None
    if not 0 <= sent.delay_ms <= DELAY_MS_MAX:
        raise BadRequest(f"message {at}: delay_ms is 0 to {DELAY_MS_MAX}")
    return Outgoing(
        body=body,
        key=sent.key,
        tag=sent.tag,
        order_key=sent.order_key,
        properties=sent.properties,
        priority=sent.priority,
        explicit_id=None if sent.id is None else _utf8(sent.id),
        delay_ms=sent.delay_ms or None,
    )


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadRequest("a text has half of a surrogate pair: it is not Unicode") from None


def _raw(headers: Mapping[str, str], body: bytes) -> Outgoing:
    """One body as it is; what belongs to it stands in headers."""
    properties: dict[str, Any] = {
        name.removeprefix(PROPERTY): unquote(value)
        for name, value in headers.items()
        if name.startswith(PROPERTY)
    }
    return Outgoing(
        body=body,
        key=_header(headers, "tern-key"),
        tag=_header(headers, "tern-tag"),
        order_key=_header(headers, "tern-order-key"),
        properties=properties or None,
    )


def _header(headers: Mapping[str, str], name: str) -> str | None:
    value = headers.get(name)
    return None if value is None else unquote(value)


def _binary_event(headers: Mapping[str, str], body: bytes) -> Outgoing:
    attributes: dict[str, Any] = {
        name[3:]: unquote(value) for name, value in headers.items() if name.startswith("ce-")
    }
    if headers.get("content-type"):
        attributes["datacontenttype"] = headers["content-type"]
    return _from_attributes(attributes, body)


def _event(event: Any) -> Outgoing:
    if not isinstance(event, dict):
        raise BadRequest("a CloudEvent is a JSON object")
    attributes = dict(event)
    data = attributes.pop("data", None)
    encoded = attributes.pop("data_base64", None)
    if encoded is not None:
        try:
            body = base64.b64decode(str(encoded), validate=True)
        except (binascii.Error, ValueError):
            raise BadRequest("data_base64 of the CloudEvent is not base64") from None
    elif data is None:
        body = b""
    else:
        body = msgspec.json.encode(data)
    return _from_attributes(attributes, body)


def _from_attributes(attributes: dict[str, Any], body: bytes) -> Outgoing:
    for name in ("specversion", "id", "source", "type"):
        if not isinstance(attributes.get(name), str) or not attributes[name]:
            raise BadRequest(f"a CloudEvent needs {name}, a text that is not empty")
    if attributes["specversion"] != "1.0":
        raise BadRequest(f"CloudEvents 1.0, not {str(attributes['specversion'])[:20]!r}")
    subject = attributes.get("subject")
    rest = {
        f"ce_{name}": value
        for name, value in attributes.items()
        if name not in ("id", "type", "subject", "time")
        and isinstance(value, str | int | float | bool)
    }
    return Outgoing(
        body=body,
        key=subject if isinstance(subject, str) and subject else None,
        tag=attributes["type"],
        properties=rest,
        born_at_ms=_born(attributes.get("time")),
        explicit_id=_utf8(f"{attributes['source']} {attributes['id']}"),
    )


def _born(time: Any) -> int:
    """When the event happened; without a time, when it came."""
    if time is None:
        return 0
    try:
        at = datetime.fromisoformat(str(time))
        born_at_ms = int(at.timestamp() * 1000) if at.tzinfo is not None else 0
    except (ValueError, OverflowError):
        born_at_ms = 0
    if not 0 < born_at_ms <= TIME_MAX_MS:
        raise BadRequest(f"time of a CloudEvent is {str(time)[:40]!r}; it is RFC 3339, with a zone")
    return born_at_ms
