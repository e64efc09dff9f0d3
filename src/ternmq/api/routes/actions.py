"""`/actions/{name}`: all that can be ordered, the same as on the pages; `dry_run` previews."""

from typing import Annotated

from fastapi import APIRouter, Body, Query, Request
from starlette.responses import Response

from ternmq.api.action_rights import check_action
from ternmq.api.actions import ACTIONS, find_action
from ternmq.api.answers import json_answer, page
from ternmq.api.service import service_of
from ternmq.core.errors import BadRequest

router = APIRouter(tags=["actions"])
Arguments = Annotated[
    dict[str, str] | None, Body(description="What it needs, by name: topic, group, ids …")
]


@router.get("/actions", summary="What can be ordered, and what each needs")
async def list_actions(request: Request) -> Response:
    items = [
        {"name": action.name, "title": action.title, "needs": action.needs}
        for action in ACTIONS.values()
    ]
    return json_answer(page(items))


@router.post("/actions/{name}", summary="Order one; with dry_run only say what it would do")
async def run_action(
    request: Request,
    name: str,
    arguments: Arguments = None,
    dry_run: Annotated[bool, Query()] = False,
) -> Response:
    mq, action = service_of(request).mq, find_action(name)
    given = arguments or {}
    if any("\0" in value for value in given.values()):
        raise BadRequest("a value has a NUL character")
    check_action(service_of(request).rights, name, given)
    outcome = await (action.preview(mq, given) if dry_run else action.run(mq, given))
    answer = {"action": name, "dry_run": dry_run, "done": outcome.done, "text": outcome.text}
    return json_answer(answer | {"facts": dict(outcome.facts)})
