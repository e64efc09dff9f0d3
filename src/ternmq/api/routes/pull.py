"""`pull`, `settle`, `extend` of a group, and a stream of it: consuming without a connection."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from ternmq.api.answers import json_answer, message_fields, rfc3339
from ternmq.api.http_consumers import LEASE_MS_MAX, MAX_ROWS, WAIT_MS_MAX
from ternmq.api.service import service_of
from ternmq.client.consuming.detached_consumer import DetachedMessage, HandleVerdict, SettleReport
from ternmq.core.errors import BadRequest
from ternmq.core.ids import check_name

router = APIRouter(tags=["consume"])
Milliseconds = Annotated[int, msgspec.Meta(ge=1, le=LEASE_MS_MAX)]


class PullWanted(msgspec.Struct, forbid_unknown_fields=True):
    max: Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)] = 100
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=WAIT_MS_MAX)] = 0
    lease_ms: Milliseconds = 60_000


class SettledOne(msgspec.Struct, forbid_unknown_fields=True):
    ack_id: str
    after_ms: Annotated[int, msgspec.Meta(ge=0, le=2**40)] | None = None
    error: str = ""


class SettleWanted(msgspec.Struct, forbid_unknown_fields=True):
    ack: list[str] = []
    retry: list[SettledOne] = []
    reject: list[SettledOne] = []


class ExtendWanted(msgspec.Struct, forbid_unknown_fields=True):
    ack_ids: list[str]
    lease_ms: Milliseconds = 60_000


def _object(example: dict[str, Any]) -> dict[str, Any]:
    form = {"schema": {"type": "object"}, "example": example}
    return {"requestBody": {"content": {"application/json": form}}}


@router.post(
    "/topics/{topic}/groups/{group}/pull",
    summary="Take messages, with ack ids that are good for lease_ms",
    openapi_extra=_object({"max": 100, "wait_ms": 0, "lease_ms": 60_000}),
)
async def pull(request: Request, topic: str, group: str) -> Response:
    wanted = await _read(request, PullWanted)
    check_names(topic, group)
    found = await service_of(request).consumers.pull(
        topic, group, rows=wanted.max, wait_ms=wanted.wait_ms, lease_ms=wanted.lease_ms
    )
    return json_answer({"messages": [pulled_fields(each) for each in found]})


@router.post(
    "/topics/{topic}/groups/{group}/settle",
    summary="Ack, retry or reject what was pulled",
    openapi_extra=_object({"ack": ["…"], "retry": [{"ack_id": "…", "after_ms": 5_000}]}),
)
async def settle(request: Request, topic: str, group: str) -> Response:
    wanted = await _read(request, SettleWanted)
    check_names(topic, group)
    verdicts = [HandleVerdict(handle=ack_id) for ack_id in wanted.ack]
    verdicts += [
        HandleVerdict(
            handle=x.ack_id,
            outcome="retry",
            after=None if x.after_ms is None else x.after_ms / 1000,
            reason=x.error,
        )
        for x in wanted.retry
    ]
    verdicts += [
        HandleVerdict(handle=x.ack_id, outcome="reject", reason=x.error) for x in wanted.reject
    ]
    report = await service_of(request).consumers.by_handle(topic, group).settle(verdicts)
    return json_answer(_report("settled", report))


@router.post(
    "/topics/{topic}/groups/{group}/extend",
    summary="Keep pulled messages for longer",
    openapi_extra=_object({"ack_ids": ["…"], "lease_ms": 60_000}),
)
async def extend(request: Request, topic: str, group: str) -> Response:
    wanted = await _read(request, ExtendWanted)
    check_names(topic, group)
    consumer = service_of(request).consumers.by_handle(topic, group)
    report = await consumer.extend(wanted.ack_ids, wanted.lease_ms / 1000)
    return json_answer(_report("extended", report))


def _report(word: str, report: SettleReport) -> dict[str, Any]:
    return {word: report.settled, "late": len(report.late), "late_ids": report.late}


def check_names(topic: str, group: str) -> None:
    check_name("topic", topic)
    check_name("group", group)


async def _read(request: Request, wanted: type[Any]) -> Any:
    body = await request.body()
    try:
        return msgspec.json.decode(body or b"{}", type=wanted)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not as it should be: {error}") from None


def pulled_fields(pulled: DetachedMessage) -> dict[str, Any]:
    message = pulled.message
    error = message.last_error
    return {
        "ack_id": pulled.handle,
        **message_fields(message),
        "attempt": message.attempt,
        "last_error": None
        if error is None
        else {"type": error.type, "text": error.text, "at": rfc3339(error.at)},
    }
