"""`/api/v1` as one application: the resources put together, errors as problems, the document.

FastAPI makes the OpenAPI document out of the functions; its own pages of it load scripts from
elsewhere, so the console shows one of ours. Calls that are used for every message (produce, pull,
settle) read and write their JSON by msgspec and pass no other machinery.
"""

import asyncio
from functools import cache
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ternmq import __version__
from ternmq.api.answers import json_answer
from ternmq.api.problems import MEDIA_TYPE, headers_of, problem, status_of
from ternmq.api.routes import (
    actions,
    cluster,
    dead,
    definitions,
    delayed,
    documents,
    group_stream,
    groups,
    jobs,
    messages,
    publish,
    pull,
    topics,
    watch,
)
from ternmq.api.service import ApiService
from ternmq.core.errors import BadRequest, TernError, Unavailable
from ternmq.core.log import get_logger

ABOUT = (
    "Everything that the console shows and does, for programs in any language. "
    "Times are RFC 3339 in UTC, ids are texts, lists have cursors. Errors are "
    "application/problem+json with the codes of the error tree."
)

log = get_logger()


def make_api(service: ApiService | None) -> FastAPI:
    """Without a service it has no answers, only its document."""
    app = FastAPI(
        title="TernMQ",
        version=__version__,
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        swagger_ui_oauth2_redirect_url=None,
    )
    app.state.service = service
    for routes in (
        topics,
        messages,
        publish,
        groups,
        pull,
        group_stream,
        delayed,
        dead,
        cluster,
    ):
        app.include_router(routes.router)
    app.include_router(documents.router)
    app.include_router(definitions.router)
    app.include_router(jobs.router)
    app.include_router(actions.router)
    app.include_router(watch.router)
    app.add_exception_handler(TernError, _refused)
    app.add_exception_handler(RequestValidationError, _refused)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _failed)
    return app


@cache
def openapi_document() -> dict[str, Any]:
    """What there is, for programs that read it."""
    return make_api(None).openapi()


async def _refused(request: Request, error: Exception) -> Response:
    """On purpose: what was wrong, and whether trying again helps."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        error = BadRequest(f"{where or 'the body'}: {first['msg']}")
    if isinstance(error, HTTPException):
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "bad_request")
        facts: dict[str, Any] = {
            "type": f"about:blank#{code}",
            "title": str(error.detail),
            "code": code,
        }
        facts |= {"status": error.status_code, "detail": str(error.detail), "retryable": False}
        headers = dict(error.headers or {})
        return json_answer(facts, error.status_code, media_type=MEDIA_TYPE, headers=headers)
    assert isinstance(error, TernError)
    return json_answer(
        problem(error), status_of(error), media_type=MEDIA_TYPE, headers=headers_of(error)
    )


async def _failed(request: Request, bug: Exception) -> Response:
    """A bug of ours shows no inside."""
    if isinstance(bug, asyncio.CancelledError | TimeoutError):
        stopped = Unavailable("the console is stopping, or the cluster took too long")
        return await _refused(request, stopped)
    log.error("a call failed by a bug", path=request.url.path, exc_info=bug)
    failed = TernError("this is a bug of the console; its log says more")
    return json_answer(problem(failed), 500, media_type=MEDIA_TYPE)
