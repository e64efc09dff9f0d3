"""Answers as JSON: records of the wire, messages and times in the form that the API promises.

msgspec writes them: records become objects, bytes base64, times RFC 3339 in UTC.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.responses import Response

from ternmq.api.bodies import as_field
from ternmq.api.views.message_masks import MaskedView
from ternmq.api.views.snapshot import GroupView, TopicView
from ternmq.client.inspection.times import TimeSpread
from ternmq.client.model.message import Message
from ternmq.client.model.times import time_from_ms
from ternmq.client.transport.fan_out import Missing
from ternmq.core.errors import Forbidden

JSON = "application/json"
_ENCODER = msgspec.json.Encoder(enc_hook=str)


def json_answer(
    value: Any,
    status: int = 200,
    *,
    media_type: str = JSON,
    headers: Mapping[str, str] | None = None,
) -> Response:
    return Response(_ENCODER.encode(plain(value)), status, headers, media_type)


def plain(value: Any) -> Any:
    """Records are objects with named fields here, not arrays as on the wire."""
    names = getattr(value, "__struct_fields__", None)
    if names is not None:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def rfc3339(at: datetime | int) -> str:
    exact = time_from_ms(at) if isinstance(at, int) else at
    return exact.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def message_fields(
    message: Message, view: MaskedView | None = None, *, topic: str = ""
) -> dict[str, Any]:
    """A message; one that an old release stored and that cannot be read is named as such. `view`:
    with what is masked hidden, as of this topic."""
    fields: dict[str, Any] = {"sequence": message.sequence, "broker_group": message.broker_group}
    unreadable: list[str] = []
    for name in ("id", "topic", "key", "tag", "order_key", "app", "properties", "priority"):
        try:
            fields[name] = getattr(message, name)
        except Exception:
            fields[name] = None
            unreadable.append(name)
    fields["stored_at"] = rfc3339(message.stored_at)
    fields["born_at"] = rfc3339(message.born_at)
    try:
        if view is None:
            fields |= as_field(message.body)
        else:
            properties = fields["properties"] or {}
            shown = view.of(topic or fields["topic"] or "", message.body, properties)
            fields |= {"properties": shown.properties, **as_field(shown.body)}
            fields |= {"masked": True} if shown.masked else {}
    except Forbidden:
        raise
    except Exception:
        unreadable.append("body")
    return fields | ({"unreadable": unreadable} if unreadable else {})


def group_fields(view: GroupView) -> dict[str, Any]:
    return {
        "topic": view.topic,
        "group": view.name,
        "ledger": {**view.counts, "total": view.total},
        "adds_up": view.adds_up,
        "consumers": view.members,
        "paused": view.paused,
        "ordered": view.ordered,
        "filter": view.filter,
        "oldest_ms": view.age_ms,
        "rate_out": view.rate_out,
        "growth": view.growth,
        "held_back": view.held_back,
        "alarm": view.alarm,
    }


def topic_fields(view: TopicView) -> dict[str, Any]:
    settings: dict[str, Any] = plain(view.topic.settings)
    settings.pop("placement", None)
    return {
        "topic": view.name,
        "created_at": rfc3339(view.topic.created_at_ms),
        "settings": settings,
        "rate_in": view.rate_in,
        "bytes_in": view.bytes_in,
        "refused": view.refused,
        "put_aside": view.put_aside,
    }


def page(items: list[Any], following: str = "", missing: Missing | None = None) -> dict[str, Any]:
    """One page of a list; what is missing in it is marked."""
    answer: dict[str, Any] = {"items": items, "next": following or None}
    return answer | ({"incomplete": missing} if missing else {})


def time_fields(seen: TimeSpread) -> dict[str, Any]:
    """How long something took: seconds that this share of the messages took at most, and how many
    there are up to each bound (null: beyond all)."""
    return {
        "messages": seen.rows,
        "p50_s": seen.within(0.5),
        "p95_s": seen.within(0.95),
        "p99_s": seen.within(0.99),
        "buckets": [
            {"up_to_s": bound, "messages": count}
            for bound, count in zip((*seen.bounds_s, None), seen.counts, strict=False)
        ],
    }
