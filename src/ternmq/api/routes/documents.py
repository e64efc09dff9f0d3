"""`/documents`: JSON that programs keep in the registry, replaced only by who knew it (ETag)."""

import re
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from ternmq.api.answers import json_answer, page, rfc3339
from ternmq.api.cursors import names_cursor, read_names
from ternmq.api.service import service_of
from ternmq.core.errors import BadRequest, TooLarge
from ternmq.wire.registry.documents import DOCUMENT_SIZE_MAX, Document

router = APIRouter(tags=["documents"])
Limit = Annotated[int, Query(ge=1, le=1_000)]
IfMatch = Annotated[
    str | None, Header(description='The ETag that it has now: "7"; *: whatever it has.')
]
IfNoneMatch = Annotated[str | None, Header(description="*: only if there is none.")]
_ETAG = re.compile(r'(?:W/)?"(\d{1,18})"')
JSON_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Any JSON; it is kept as it is.",
        "content": {"application/json": {"schema": {}}},
    }
}


@router.get("/documents", summary="List documents, by kind and name, without their bodies")
async def list_all_documents(
    request: Request, prefix: str = "", after: str = "", limit: Limit = 100
) -> Response:
    return await _listed(request, "", prefix, after, limit)


@router.get("/documents/{kind}", summary="List documents of a kind, without their bodies")
async def list_documents(
    request: Request, kind: str, prefix: str = "", after: str = "", limit: Limit = 100
) -> Response:
    return await _listed(request, kind, prefix, after, limit)


@router.get("/documents/{kind}/{name}", summary="A document; its ETag is its version")
async def get_document(request: Request, kind: str, name: str) -> Response:
    found = await service_of(request).mq.admin.documents.get(kind, name)
    try:
        body = msgspec.json.decode(found.body)
    except (msgspec.DecodeError, RecursionError):
        body = found.body  # Of a program that keeps no JSON: base64.
    return json_answer(_facts(found) | {"body": body}, headers=_tagged(found))


@router.put(
    "/documents/{kind}/{name}",
    summary="Make or replace a document; with If-Match only the version that was read",
    openapi_extra=JSON_BODY,
)
async def put_document(
    request: Request,
    kind: str,
    name: str,
    expires_s: Annotated[
        float | None, Query(gt=0, le=10 * 366 * 86_400, description="Gone after so many seconds.")
    ] = None,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    body = await _json_body(request)
    version = _version(if_match, if_none_match)
    documents = service_of(request).mq.admin.documents
    put = await documents.put(kind, name, body, version=version, expires=expires_s)
    return json_answer(_facts(put), headers=_tagged(put))


@router.delete("/documents/{kind}/{name}", summary="Delete a document")
async def delete_document(
    request: Request, kind: str, name: str, if_match: IfMatch = None
) -> Response:
    version = _version(if_match, None)
    await service_of(request).mq.admin.documents.delete(kind, name, version=version)
    return Response(status_code=204)


async def _listed(request: Request, kind: str, prefix: str, after: str, limit: int) -> Response:
    documents = service_of(request).mq.admin.documents
    found = await documents.page(kind, prefix, read_names(after), limit)
    following = names_cursor(found.following) if found.following else ""
    return json_answer(page([_facts(each) for each in found.documents], following))


async def _json_body(request: Request) -> bytes:
    """The body of the request as it came, if it is JSON."""
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > DOCUMENT_SIZE_MAX:
            raise TooLarge(f"a document has at most {DOCUMENT_SIZE_MAX} bytes")
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"a document is JSON here: {error}") from None
    return bytes(data)


def _version(if_match: str | None, if_none_match: str | None) -> int | None:
    if if_none_match is not None:
        if if_none_match.strip() != "*":
            raise BadRequest("If-None-Match can only be *: it shall not be there")
        return 0
    if if_match is None or if_match.strip() == "*":
        return None
    tag = _ETAG.fullmatch(if_match.strip())
    if tag is None:
        raise BadRequest(f'If-Match is {if_match[:40]!r}; it is an ETag as it was told: "7"')
    return int(tag[1])


def _tagged(document: Document) -> dict[str, str]:
    return {"ETag": f'"{document.version}"'}


def _facts(document: Document) -> dict[str, Any]:
    return {
        "kind": document.kind,
        "name": document.name,
        "version": document.version,
        "size": document.size,
        "changed_at": rfc3339(document.changed_at_ms),
        "expires_at": rfc3339(document.expires_at_ms) if document.expires_at_ms else None,
    }
