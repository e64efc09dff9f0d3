"""`POST /topics/{topic}/messages`: JSON, NDJSON, one raw body, CloudEvents.

What the body is, is said by its `Content-Type`. Each form becomes a list of `Outgoing`, which is
sent at once: the answer comes when all of it is safe. With ids of their own (`id`, CloudEvents, or
an `Idempotency-Key`) messages are stored at most once, however often the request is repeated: the
broker group is chosen by the id, as ids are known per broker group.
"""

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from fastapi import APIRouter, Request
from starlette.responses import Response

from ternmq.api.answers import json_answer, rfc3339
from ternmq.api.routes.outgoing_bodies import ENVELOPE_SIZE_MAX, read_messages
from ternmq.api.service import ApiService, service_of
from ternmq.batch.encoder import Outgoing
from ternmq.client.model.receipt import Receipt
from ternmq.client.producing.deliver_once import choose_group
from ternmq.core.errors import BadRequest, TernError, TooLarge, Unavailable
from ternmq.core.ids import check_name

router = APIRouter(tags=["messages"])

_EXAMPLE = {"messages": [{"json": {"order": 1}, "key": "o-1", "tag": "vip", "delay_ms": 0}]}
_FORMS: dict[str, Any] = {
    "application/json": {"schema": {"type": "object"}, "example": _EXAMPLE},
    "application/x-ndjson": {"schema": {"type": "string"}},
    "application/cloudevents+json": {"schema": {"type": "object"}},
    "application/cloudevents-batch+json": {"schema": {"type": "array"}},
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
}


@router.post(
    "/topics/{topic}/messages",
    summary="Send messages: JSON, NDJSON, raw, CloudEvents",
    openapi_extra={"requestBody": {"content": _FORMS, "required": True}},
)
async def produce(request: Request, topic: str) -> Response:
    """The answer has a receipt for each; 207 if some were not stored."""
    check_name("topic", topic)
    service = service_of(request)
    rows = read_messages(request.headers, await _body(request))
    key = request.headers.get("idempotency-key", "")
    if key:
        for at, row in enumerate(rows):
            row.explicit_id = row.explicit_id or f"{key}/{at}".encode()
    given = [row.explicit_id is not None for row in rows]
    if not any(given):
        return await _send(service, topic, rows)
    if not all(given):
        raise BadRequest("some messages have an id of their own and others not: all, or none")
    return await _send_once(service, topic, rows)


async def _body(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > ENVELOPE_SIZE_MAX:
            raise TooLarge(f"a request has at most {ENVELOPE_SIZE_MAX} bytes: send in parts")
        parts.append(part)
    return b"".join(parts)


async def _send(service: ApiService, topic: str, rows: Sequence[Outgoing]) -> Response:
    sent = await service.mq.send_many(topic, rows)
    failures = {row: error for failed, error in sent.failures for row in failed}
    receipts = [None if at in failures else _receipt(sent[at]) for at in range(len(rows))]
    return _answer(receipts, failures)


def _receipt(receipt: Receipt) -> dict[str, Any]:
    due_at_ms = receipt.due_at_ms
    return {
        "id": receipt.id,
        "broker_group": receipt.broker_group,
        "sequence": receipt.sequence if due_at_ms is None else None,
        "stored_at": rfc3339(receipt.stored_at),
        "due_at": None if due_at_ms is None else rfc3339(due_at_ms),
        "duplicate": receipt.duplicate,
    }


async def _send_once(service: ApiService, topic: str, rows: Sequence[Outgoing]) -> Response:
    groups = await service.mq.admin.broker_groups()
    by_group: dict[str, list[int]] = {}
    for at, row in enumerate(rows):
        if row.delay_ms is not None:
            raise BadRequest("a delayed message has no id of its own: leave out id, or delay")
        group = choose_group(groups, crc32(row.explicit_id or b""))
        if group is None:
            raise Unavailable("no broker group is there")
        by_group.setdefault(group, []).append(at)
    receipts: list[dict[str, Any] | None] = [None] * len(rows)
    failures: dict[int, TernError] = {}
    for group, places in by_group.items():
        try:
            stored = await service.mq.send_once(topic, [rows[at] for at in places], group)
        except TernError as error:
            failures |= dict.fromkeys(places, error)
            continue
        for at, receipt in zip(places, stored, strict=True):
            receipts[at] = {
                "id": receipt.id,
                "broker_group": group,
                "sequence": receipt.sequence,
                "duplicate": receipt.duplicate,
            }
    return _answer(receipts, failures)


def _answer(receipts: Sequence[Any], failures: dict[int, TernError]) -> Response:
    if failures and len(failures) == len(receipts):
        raise next(iter(failures.values()))
    shown = [
        {"row": row, "code": error.code, "detail": error.message, "retryable": error.retryable}
        for row, error in sorted(failures.items())
    ]
    answer: dict[str, Any] = {"receipts": list(receipts)}
    return json_answer(answer | ({"failures": shown} if shown else {}), 207 if shown else 200)
