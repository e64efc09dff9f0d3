"""Errors as HTTP answers: `application/problem+json` (RFC 9457) with the codes of the error tree.

`status_of` says which HTTP status an error is, `problem` what is written. A bug of ours is a 500
that shows no inside; its traceback goes to the log. Pure.
"""

from http import HTTPStatus
from typing import Any

from ternmq.core.errors import (
    AlreadyExists,
    BadRequest,
    BufferFull,
    Closed,
    Conflict,
    DiskFailed,
    DiskFull,
    DocumentNotFound,
    FilterConflict,
    Forbidden,
    GroupNotFound,
    IdentityNotFound,
    LeaseLost,
    MasterAlive,
    Moved,
    NotConfirmed,
    NotInSync,
    NotMaster,
    OverLimit,
    Paused,
    PutAside,
    ReadOnly,
    SendUnknown,
    TernError,
    TooLarge,
    TopicNotFound,
    TransactionEnded,
    TransactionNotFound,
    Unauthorized,
    Unavailable,
    VersionMismatch,
)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1

STATUS: dict[type[TernError], int] = {
    FilterConflict: 409,
    TooLarge: 413,
    BadRequest: 400,
    TopicNotFound: 404,
    GroupNotFound: 404,
    IdentityNotFound: 404,
    TransactionNotFound: 404,
    DocumentNotFound: 404,
    AlreadyExists: 409,
    Forbidden: 403,
    Unauthorized: 401,
    PutAside: 429,
    OverLimit: 429,
    BufferFull: 429,
    Paused: 423,
    ReadOnly: 503,
    NotMaster: 503,
    Moved: 503,
    Unavailable: 503,
    Closed: 503,
    DiskFull: 507,
    DiskFailed: 503,
    VersionMismatch: 412,
    Conflict: 409,
    MasterAlive: 409,
    NotInSync: 409,
    NotConfirmed: 409,
    TransactionEnded: 409,
    LeaseLost: 409,
    SendUnknown: 504,
}
"""The nearest class of an error decides."""


def status_of(error: TernError) -> int:
    for cls in type(error).__mro__:
        if cls in STATUS:
            return STATUS[cls]
    return 500


def problem(error: TernError) -> dict[str, Any]:
    """What is written about an error; details that JSON cannot hold are shown as text."""
    status = status_of(error)
    return {
        "type": f"about:blank#{error.code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": error.message,
        "code": error.code,
        "retryable": error.retryable,
        "details": {name: _plain(value) for name, value in error.details.items()},
    }


def headers_of(error: TernError) -> dict[str, str]:
    """When trying again helps, clients are told after how long."""
    if not error.retryable:
        return {}
    wait = error.wait if isinstance(error, OverLimit) else None
    return {"Retry-After": str(max(RETRY_AFTER_S, round(wait or 0)))}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value)
