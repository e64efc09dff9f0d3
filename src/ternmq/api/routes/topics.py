"""`/topics`: list, one, make, change, delete."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request
from starlette.responses import Response

from ternmq.api.answers import json_answer, page, topic_fields
from ternmq.api.cursors import names_cursor, read_names
from ternmq.api.service import service_of
from ternmq.api.views.snapshot import TopicView
from ternmq.core.errors import BadRequest
from ternmq.wire.messages.topics import TopicSettings

router = APIRouter(tags=["topics"])
LIMIT_MAX = 1_000
SETTINGS = frozenset(TopicSettings.__struct_fields__) - {"placement"}

Settings = Annotated[dict[str, Any] | None, Body(description="Settings of the topic, by name.")]
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]


@router.get("/topics", summary="List topics, by name")
async def list_topics(
    request: Request, q: str = "", after: str = "", limit: Limit = 100
) -> Response:
    snapshot = await service_of(request).watch.fresh()
    names = [name for name in sorted(snapshot.topics) if q.lower() in name.lower()]
    begin = read_names(after)
    names = [name for name in names if name > begin]
    shown = [topic_fields(snapshot.topics[name]) for name in names[:limit]]
    following = names_cursor(names[limit - 1]) if len(names) > limit else ""
    return json_answer(page(shown, following, dict(snapshot.missing)))


@router.get("/topics/{topic}", summary="Show a topic")
async def show_topic(request: Request, topic: str) -> Response:
    service = service_of(request)
    found = await service.mq.admin.topic(topic)
    view = (await service.watch.fresh()).topics.get(topic) or TopicView(topic=found)
    return json_answer(topic_fields(view))


@router.get("/topics/{topic}/figures", summary="Rates and refusals, of each broker group")
async def topic_figures(request: Request, topic: str) -> Response:
    admin = service_of(request).mq.admin.tolerant()
    await admin.topic(topic)
    return json_answer(page(list(await admin.topic_figures(topic)), missing=admin.missing))


@router.put("/topics/{topic}", summary="Make a topic, or change its settings")
async def put_topic(request: Request, topic: str, settings: Settings = None) -> Response:
    service = service_of(request)
    changes = _checked(settings or {})
    await service.mq.admin.create_topic(topic)
    if changes:
        await service.mq.admin.set_topic(topic, **changes)
    return json_answer(topic_fields(TopicView(topic=await service.mq.admin.topic(topic))))


@router.patch("/topics/{topic}", summary="Change settings of a topic")
async def patch_topic(request: Request, topic: str, settings: Settings = None) -> Response:
    admin = service_of(request).mq.admin
    await admin.topic(topic)
    changes = _checked(settings or {})
    if changes:
        await admin.set_topic(topic, **changes)
    return json_answer(topic_fields(TopicView(topic=await admin.topic(topic))))


@router.delete("/topics/{topic}", summary="Delete a topic with its messages and groups")
async def delete_topic(request: Request, topic: str) -> Response:
    admin = service_of(request).mq.admin
    await admin.topic(topic)
    await admin.delete_topic(topic)
    return Response(status_code=204)


def _checked(settings: dict[str, Any]) -> dict[str, Any]:
    strange = sorted(set(settings) - SETTINGS)
    if strange:
        known = ", ".join(sorted(SETTINGS))
        raise BadRequest(f"{strange[0][:40]!r} is no setting of a topic; there are: {known}")
    return settings
