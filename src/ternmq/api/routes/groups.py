"""`/groups` and `/topics/{topic}/groups/{group}`: list, one, make, change, delete, members."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request
from starlette.responses import Response

from ternmq.api.answers import group_fields, json_answer, page, time_fields
from ternmq.api.cursors import names_cursor, read_names
from ternmq.api.service import ApiService, service_of
from ternmq.client.admin.merge_answers import merged_consumers, merged_groups
from ternmq.core.errors import BadRequest, GroupNotFound
from ternmq.wire.messages.groups import Group, GroupSet

router = APIRouter(tags=["groups"])
LIMIT_MAX = 1_000
SETTINGS = frozenset(GroupSet.__struct_fields__) - {"topic", "group"}

Settings = Annotated[dict[str, Any] | None, Body(description="Settings of the group, by name.")]
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]


@router.get("/groups", summary="List consumer groups of all topics")
async def list_groups(
    request: Request, q: str = "", topic: str = "", after: str = "", limit: Limit = 100
) -> Response:
    snapshot = await service_of(request).watch.fresh()
    begin = read_names(after)
    found = {
        f"{view.topic}/{view.name}": view
        for view in snapshot.groups.values()
        if q.lower() in f"{view.topic}/{view.name}".lower() and topic in ("", view.topic)
    }
    names = [name for name in sorted(found) if name > begin]
    following = names_cursor(names[limit - 1]) if len(names) > limit else ""
    items = [group_fields(found[name]) for name in names[:limit]]
    return json_answer(page(items, following, dict(snapshot.missing)))


@router.get("/topics/{topic}/groups", summary="List the consumer groups of a topic")
async def list_topic_groups(
    request: Request, topic: str, after: str = "", limit: Limit = 100
) -> Response:
    await service_of(request).mq.admin.topic(topic)
    return await list_groups(request, topic=topic, after=after, limit=limit)


async def _found(service: ApiService, topic: str, group: str) -> tuple[list[Group], dict[str, str]]:
    admin = service.mq.admin.tolerant()
    found = await admin.groups(topic, group)
    if not found:
        raise GroupNotFound(f"topic {topic!r} has no group {group!r}")
    return found, admin.missing


def _shown(found: list[Group], missing: dict[str, str]) -> dict[str, Any]:
    lanes = merged_groups(found)
    answer = {
        "topic": lanes[0].topic,
        "group": lanes[0].name,
        "filter": lanes[0].filter,
        "ordered": lanes[0].ordered,
        "settings": lanes[0].settings,
        "lanes": [lane.ledger for lane in lanes],
        "members": merged_consumers(member for each in found for member in each.members),
    }
    return answer | ({"incomplete": missing} if missing else {})


@router.get("/topics/{topic}/groups/{group}", summary="Show a group: ledger, members, settings")
async def show_group(request: Request, topic: str, group: str) -> Response:
    return json_answer(_shown(*await _found(service_of(request), topic, group)))


@router.get("/topics/{topic}/groups/{group}/keys", summary="Order keys that stand still")
async def group_keys(request: Request, topic: str, group: str) -> Response:
    return json_answer(await service_of(request).mq.admin.group_keys(topic, group))


@router.get("/topics/{topic}/groups/{group}/leases", summary="Who holds which messages")
async def group_leases(request: Request, topic: str, group: str, limit: Limit = 100) -> Response:
    admin = service_of(request).mq.admin.tolerant()
    return json_answer(page(list(await admin.leases(topic, group, limit)), missing=admin.missing))


@router.get("/topics/{topic}/groups/{group}/waiting", summary="What waits for its next attempt")
async def group_waiting(request: Request, topic: str, group: str, limit: Limit = 100) -> Response:
    admin = service_of(request).mq.admin.tolerant()
    found = await admin.waiting(topic, group, limit)
    counts = {"total": found.total, "errors": found.errors, "scanned": found.scanned}
    return json_answer(page(list(found.rows), missing=admin.missing) | counts)


@router.get(
    "/topics/{topic}/groups/{group}/times", summary="How long messages wait and are worked on"
)
async def group_times(request: Request, topic: str, group: str) -> Response:
    admin = service_of(request).mq.admin.tolerant()
    times = await admin.group_times(topic, group)
    answer = {
        "recent": {"wait": time_fields(times.wait), "handle": time_fields(times.handle)},
        "ever": {"wait": time_fields(times.wait_ever), "handle": time_fields(times.handle_ever)},
    }
    return json_answer(answer | ({"incomplete": admin.missing} if admin.missing else {}))


@router.put("/topics/{topic}/groups/{group}", summary="Make a group, or change its settings")
async def put_group(
    request: Request, topic: str, group: str, settings: Settings = None
) -> Response:
    service = service_of(request)
    changes = _checked(settings or {})
    await service.mq.admin.topic(topic)
    await service.mq.admin.create_group(topic, group)
    if changes:
        await service.mq.admin.set_group(topic, group, **changes)
    return json_answer(_shown(*await _found(service, topic, group)))


@router.patch("/topics/{topic}/groups/{group}", summary="Change settings of a group")
async def patch_group(
    request: Request, topic: str, group: str, settings: Settings = None
) -> Response:
    service = service_of(request)
    await _found(service, topic, group)
    changes = _checked(settings or {})
    if changes:
        await service.mq.admin.set_group(topic, group, **changes)
    return json_answer(_shown(*await _found(service, topic, group)))


@router.delete("/topics/{topic}/groups/{group}", summary="Delete a group")
async def delete_group(request: Request, topic: str, group: str) -> Response:
    service = service_of(request)
    await _found(service, topic, group)
    await service.mq.admin.delete_group(topic, group)
    return Response(status_code=204)


def _checked(settings: dict[str, Any]) -> dict[str, Any]:
    strange = sorted(set(settings) - SETTINGS)
    if strange:
        known = ", ".join(sorted(SETTINGS))
        raise BadRequest(f"{strange[0][:40]!r} is no setting of a group; there are: {known}")
    return settings
