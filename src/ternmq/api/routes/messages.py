"""Messages that are stored: a topic page by page, one by its id, some by their key."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ternmq.api.answers import json_answer, message_fields, page, rfc3339
from ternmq.api.service import service_of
from ternmq.api.views.browse import BrowseWanted
from ternmq.api.views.message_masks import MaskedView
from ternmq.client.reading.find import Finding
from ternmq.client.reading.written_start import parse_start
from ternmq.client.transport.fan_out import Missing
from ternmq.core.errors import BadRequest, TopicNotFound

router = APIRouter(tags=["messages"])
LIMIT_MAX = 1_000
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]
When = Annotated[str, Query(description="A time (RFC 3339), or how long ago: 10m")]


def moment(name: str, text: str) -> datetime | None:
    if not text:
        return None
    point = parse_start(text, now=datetime.now(UTC))
    if not isinstance(point, datetime):
        raise BadRequest(f"{name} is {text[:40]!r}; write 2026-01-31T12:00:00Z, or 10m (ago)")
    return point


@router.get("/topics/{topic}/messages", summary="Browse the messages of a topic")
async def browse(
    request: Request,
    topic: str,
    where: Annotated[str, Query(description="An SQL92 filter on properties")] = "",
    order: Literal["newest", "oldest"] = "oldest",
    limit: Limit = 100,
    after: str = "",
    unmask: bool = False,
) -> Response:
    """Also `from`, `to` (times), `key`, `tag` and `text` (in the body)."""
    service = service_of(request)
    asked = request.query_params
    await service.mq.admin.topic(topic)
    wanted = BrowseWanted(
        topic=topic,
        order=order,
        start=moment("from", asked.get("from", "")),
        end=moment("to", asked.get("to", "")),
        where=where,
        key=asked.get("key", ""),
        tag=asked.get("tag", ""),
        text=asked.get("text", ""),
        limit=limit,
        cursor=after,
    )
    view = await service.masks.view(service.rights, unmask=unmask)
    view.check_search(topic, text=wanted.text, where=where)
    found = await service.browser.page(wanted)
    items = [message_fields(message, view) for message in found.messages]
    scanned = {"scanned": found.scanned, "ended_early": found.early}
    return json_answer(page(items, found.next, found.missing) | scanned)


@router.get(
    "/messages/{id}", summary="One message: where it is kept, its state in every group, why"
)
async def show_message(
    request: Request, id: str, topic: str = "", unmask: bool = False
) -> Response:
    """`topic`: only there; who may not read all topics has to name one."""
    service = service_of(request)
    view = await service.masks.view(service.rights, unmask=unmask)
    found = await service.mq.trace(id, topic or None)
    if not found.places and not found.delayed:
        raise TopicNotFound(f"nobody that answers has a message {id[:64]!r}")
    places = [
        _place(place.found, view)
        | {
            "complete": place.complete,
            "groups": [
                {"state": each.state, "why": each.why, "events": each.events}
                for each in place.groups
            ],
        }
        for place in found.places
    ]
    delayed = [
        {"topic": row.topic, "due_at": rfc3339(row.due_at_ms), "state": row.state}
        for row in found.delayed
    ]
    return json_answer(page(places, missing=found.missing) | {"delayed": delayed})


@router.get("/messages", summary="Messages with a key, stored last first")
async def find_messages(
    request: Request, key: str, limit: Limit = 100, unmask: bool = False
) -> Response:
    service = service_of(request)
    missing: Missing = {}
    view = await service.masks.view(service.rights, unmask=unmask)
    found = await service.mq.find(key=key, limit=limit, missing=missing)
    return json_answer(page([_place(each, view) for each in found], missing=missing))


def _place(found: Finding, view: MaskedView) -> dict[str, Any]:
    return message_fields(found.message, view) | {"lane": found.lane, "offset": found.offset}
