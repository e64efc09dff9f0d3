"""`/dead/{group}`, `/refused/{topic}`, `/half`: what waits for a person."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ternmq.api.answers import json_answer, message_fields, page, rfc3339
from ternmq.api.service import service_of
from ternmq.api.views.error_kinds import alike
from ternmq.api.views.letters import LOOKED_AT_MAX, LetterBox
from ternmq.api.views.message_masks import MaskedView
from ternmq.client.reading.letters import Letter
from ternmq.core.ids import check_name, id_to_text

router = APIRouter(tags=["set aside"])
Limit = Annotated[int, Query(ge=1, le=LOOKED_AT_MAX)]


@router.get("/dead", summary="Groups that ever had dead letters")
async def list_dead(request: Request) -> Response:
    snapshot = await service_of(request).watch.fresh()
    counts: dict[str, int] = {}
    for view in snapshot.groups.values():
        if view.dead:
            counts[view.name] = counts.get(view.name, 0) + view.dead
    items = [{"group": name, "ever": count} for name, count in sorted(counts.items())]
    return json_answer(page(items, missing=dict(snapshot.missing)))


@router.get("/dead/{group}", summary="Open dead letters of a group, the newest first")
async def dead_letters(request: Request, group: str, limit: Limit = 100) -> Response:
    box = LetterBox(mq=service_of(request).mq, group=check_name("group", group))
    return await _letters(request, box, limit)


@router.get("/dead/{group}/alike", summary="Dead letters by what went wrong")
async def dead_alike(request: Request, group: str) -> Response:
    read = await LetterBox(mq=service_of(request).mq, group=check_name("group", group)).read()
    kinds = alike((each.message.id, each.notes) for each in read.letters)
    items = [
        {
            "error": kind.mark,
            "where": kind.place,
            "count": kind.count,
            "first": rfc3339(kind.first_ms),
            "last": rfc3339(kind.last_ms),
            "sent_again_before": kind.resent,
            "examples": kind.examples,
        }
        for kind in kinds
    ]
    return json_answer(page(items, missing=read.missing) | {"open": read.open})


@router.get("/refused/{topic}", summary="Messages over a topic's limit that were put aside")
async def refused(request: Request, topic: str, limit: Limit = 100) -> Response:
    box = LetterBox(mq=service_of(request).mq, topic=check_name("topic", topic))
    return await _letters(request, box, limit)


@router.get("/half", summary="Transactions that have not ended")
async def open_halves(request: Request, limit: Limit = 100) -> Response:
    admin = service_of(request).mq.admin.tolerant()
    opens = await admin.halves(limit=limit)
    items = [
        {
            "transaction": id_to_text(int.from_bytes(one.transaction, "big")),
            "name": one.name,
            "app": one.app,
            "state": one.state,
            "topics": one.topics,
            "messages": one.rows,
            "opened_at": rfc3339(one.opened_at_ms),
            "checks": one.checks,
        }
        for one in opens
    ]
    return json_answer(page(items, missing=admin.missing) | {"total": opens.total})


async def _letters(request: Request, box: LetterBox, limit: int) -> Response:
    service = service_of(request)
    unmask = request.query_params.get("unmask", "").lower() in ("1", "true")
    view = await service.masks.view(service.rights, unmask=unmask)
    read = await box.read(limit)
    items = [_letter(each, view, box.topic) for each in read.letters]
    return json_answer(page(items, missing=read.missing) | {"open": read.open})


def _letter(each: Letter, view: MaskedView, topic: str) -> dict[str, Any]:
    of = topic or str(each.notes.get("%topic", ""))
    fields = message_fields(each.message, view, topic=of)
    fields["properties"] = {
        name: value
        for name, value in (fields["properties"] or {}).items()
        if not name.startswith("%")
    }
    return fields | {
        "topic": each.notes.get("%topic"),
        "attempt": each.notes.get("%attempt"),
        "reason": each.notes.get("%reason"),
        "error": each.notes.get("%error_text"),
        "died_at": rfc3339(int(each.notes.get("%died_at", 0))),
        "sent_again": each.notes.get("%resent", 0),
    }
