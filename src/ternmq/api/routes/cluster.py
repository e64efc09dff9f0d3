"""`/cluster`: the servers, and how the cluster is doing as a whole."""

import dataclasses
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ternmq.api.answers import json_answer, page
from ternmq.api.service import service_of
from ternmq.api.views.attention import needs_attention
from ternmq.core.errors import Unavailable

router = APIRouter(tags=["cluster"])
Limit = Annotated[int, Query(ge=1, le=1_000)]


@router.get("/clients", summary="Connections to the brokers: application, host, what they consume")
async def list_clients(request: Request, app: str = "", limit: Limit = 100) -> Response:
    admin = service_of(request).mq.admin.tolerant()
    return json_answer(page(list(await admin.sessions(app, limit)), missing=admin.missing))


@router.get(
    "/senders", summary="What each application has sent to each topic since its broker began"
)
async def list_senders(request: Request, topic: str = "") -> Response:
    admin = service_of(request).mq.admin.tolerant()
    return json_answer(page(list(await admin.senders(topic)), missing=admin.missing))


@router.get("/cluster", summary="Servers, rates, what needs attention")
async def show_cluster(request: Request) -> Response:
    snapshot = await service_of(request).watch.fresh()
    if snapshot.trouble and not snapshot.servers:
        raise Unavailable(snapshot.trouble)
    answer = {
        "attention": [dataclasses.asdict(each) for each in needs_attention(snapshot)],
        "servers": [dataclasses.asdict(each) for each in snapshot.servers],
        "rate_in": snapshot.rate_in,
        "rate_out": snapshot.rate_out,
        "delayed": snapshot.delayed,
        "topics": len(snapshot.topics),
        "groups": len(snapshot.groups),
        "trouble": snapshot.trouble,
    }
    missing = {"incomplete": dict(snapshot.missing)} if snapshot.missing else {}
    return json_answer(answer | missing)
