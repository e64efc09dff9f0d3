"""`/cluster`: the servers, and how the cluster is doing as a whole."""

import dataclasses

from fastapi import APIRouter, Request
from starlette.responses import Response

from ternmq.api.answers import json_answer
from ternmq.api.service import service_of
from ternmq.api.views.attention import needs_attention
from ternmq.core.errors import Unavailable

router = APIRouter(tags=["cluster"])


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
