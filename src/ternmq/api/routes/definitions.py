"""`/definitions`: topics, groups, limits and documents as one file; with dry_run only a plan."""

import dataclasses
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ternmq.api.answers import json_answer
from ternmq.api.definitions import (
    FILE_SIZE_MAX,
    export_definitions,
    import_definitions,
    plan_import,
    read_definitions,
)
from ternmq.api.service import service_of
from ternmq.core.errors import TooLarge

router = APIRouter(tags=["definitions"])
JSON_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A file as GET gives it.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


@router.get("/definitions", summary="What is defined, as one file; no messages, users or keys")
async def get_definitions(request: Request) -> Response:
    return json_answer(await export_definitions(service_of(request).mq))


@router.post(
    "/definitions",
    summary="Make what is not there, change what differs; with dry_run only say so",
    openapi_extra=JSON_BODY,
)
async def post_definitions(request: Request, dry_run: Annotated[bool, Query()] = False) -> Response:
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > FILE_SIZE_MAX:
            raise TooLarge(f"a file of definitions has at most {FILE_SIZE_MAX} bytes")
    wanted, mq = read_definitions(bytes(data)), service_of(request).mq
    changes = await (plan_import(mq, wanted) if dry_run else import_definitions(mq, wanted))
    return json_answer(
        {"dry_run": dry_run, "changes": [dataclasses.asdict(each) for each in changes]}
    )
