"""`/watch`: a stream of server-sent events, one snapshot after each look at the cluster."""

from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from ternmq.api.answers import group_fields, rfc3339, topic_fields
from ternmq.api.service import service_of
from ternmq.api.views.snapshot import Snapshot
from ternmq.api.views.watch import LooksShared
from ternmq.core.errors import Closed

router = APIRouter(tags=["cluster"])
NAMES_MAX = 100


def event(snapshot: Snapshot, topics: list[str], groups: list[str]) -> bytes:
    """One snapshot with figures of the topics and groups that were asked for."""
    seen = {
        "at": rfc3339(snapshot.at_ms),
        "rate_in": snapshot.rate_in,
        "rate_out": snapshot.rate_out,
        "delayed": snapshot.delayed,
        "trouble": snapshot.trouble,
        "incomplete": dict(snapshot.missing),
        "topics": [topic_fields(snapshot.topics[x]) for x in topics if x in snapshot.topics],
        "groups": [group_fields(view) for name in groups for view in snapshot.named(name)],
    }
    return b"id: %d\ndata: %b\n\n" % (snapshot.number, msgspec.json.encode(seen))


@router.get("/watch", summary="Server-sent events: one snapshot after each look")
async def watch(request: Request, topics: str = "", groups: str = "") -> Response:
    """`topics` and `groups`: names, separated by commas, whose figures are wanted."""
    wanted = [[name for name in text.split(",") if name][:NAMES_MAX] for text in (topics, groups)]
    stream = _events(service_of(request).watch, *wanted)
    headers = {"Cache-Control": "no-store"}
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


async def _events(watch: LooksShared, topics: list[str], groups: list[str]) -> AsyncIterator[bytes]:
    with suppress(Closed):
        snapshot = await watch.fresh()
        while True:
            yield event(snapshot, topics, groups)
            watch.wanted()
            snapshot = await watch.after(snapshot.number)
