"""`/delayed`: messages for later. Changing them is an action."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ternmq.api.answers import json_answer, page, rfc3339
from ternmq.api.routes.messages import moment
from ternmq.api.service import service_of
from ternmq.core.ids import id_to_text

router = APIRouter(tags=["delayed"])
Limit = Annotated[int, Query(ge=1, le=1_000)]


@router.get("/delayed", summary="Messages that wait for their time, the next to be due first")
async def list_delayed(
    request: Request, topic: str = "", key: str = "", limit: Limit = 100
) -> Response:
    """Also `from` and `to`: due in between."""
    asked = request.query_params
    rows = await service_of(request).mq.admin.delays.rows(
        topic=topic,
        key=key,
        start=moment("from", asked.get("from", "")),
        end=moment("to", asked.get("to", "")),
        limit=limit,
    )
    items = [
        {
            "id": id_to_text(int.from_bytes(row.id, "big")) if len(row.id) == 16 else row.id.hex(),
            "topic": row.topic,
            "key": row.key,
            "due_at": rfc3339(row.due_at_ms),
            "accepted_at": rfc3339(row.accepted_at_ms),
            "size": row.size,
            "state": row.state,
        }
        for row in rows
    ]
    return json_answer(page(items))


@router.get("/delayed/counts", summary="How many are due in each hour")
async def count_delayed(request: Request, topic: str = "") -> Response:
    counts = await service_of(request).mq.admin.delays.counts(topic)
    items = [{"from": rfc3339(at), "count": count} for at, count in counts.hours]
    return json_answer(page(items) | {"step_ms": counts.hour_ms})


@router.get("/delayed/ledger", summary="What became of every delayed message, by topic")
async def delayed_ledger(request: Request, topic: str = "") -> Response:
    return json_answer(page(list(await service_of(request).mq.admin.delays.ledger(topic))))
