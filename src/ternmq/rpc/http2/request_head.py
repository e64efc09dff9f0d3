"""The headers of a call: checked as HTTP/2 and gRPC ask, and told apart.

What breaks HTTP/2 ends the stream (`StreamFault`). What is HTTP/2 and no gRPC call has an HTTP
status to be answered with. A call that cannot be served as it says (a time that is none) has a
refusal. Names are judged once and remembered, up to a bound. Pure.
"""

import base64
import binascii
import re
from dataclasses import dataclass, field

from ternmq.rpc.http2.calls import CallRefused, CallStatus
from ternmq.rpc.http2.frames import FaultCode, StreamFault
from ternmq.rpc.http2.hpack import HeaderList

NAMES_KEPT = 2_000
GRPC = "application/grpc"
IDENTITY = "identity"
_PLAIN, _PSEUDO, _OURS, _BINARY, _CONNECTION = range(5)
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+", re.ASCII)
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])", re.ASCII)
_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_KNOWN = {
    ":method": _PSEUDO,
    ":scheme": _PSEUDO,
    ":path": _PSEUDO,
    ":authority": _PSEUDO,
    "content-type": _OURS,
    "content-length": _OURS,
    "te": _OURS,
    "connection": _CONNECTION,
    "keep-alive": _CONNECTION,
    "proxy-connection": _CONNECTION,
    "transfer-encoding": _CONNECTION,
    "upgrade": _CONNECTION,
}
_kinds = dict(_KNOWN)


@dataclass(slots=True, kw_only=True)
class RequestHead:
    """What a call says of itself before its first message."""

    path: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    """Its headers, without those of HTTP/2 and gRPC."""
    timeout_s: float | None = None
    encoding: str = IDENTITY
    content_length: int | None = None
    http_status: int = 200
    """Another one: it is no gRPC call, and this is its whole answer."""
    refusal: CallRefused | None = None


def _malformed(message: str) -> StreamFault:
    return StreamFault(FaultCode.PROTOCOL_ERROR, message)


def _kind_of(name: str) -> int:
    if name.startswith(":"):
        raise _malformed(f"{name[:64]!r} is no header of a request")
    if _NAME.fullmatch(name) is None:
        raise _malformed("a header name with letters that none has")
    kind = _BINARY if name.endswith("-bin") else _PLAIN
    if name.startswith("grpc-"):
        kind = _OURS
    if len(_kinds) >= NAMES_KEPT:
        _kinds.clear()
        _kinds.update(_KNOWN)
    _kinds[name] = kind
    return kind


def read_head(headers: HeaderList) -> RequestHead:
    """Raises `StreamFault` where they are not the headers of any request."""
    pseudo: dict[str, str] = {}
    ours: dict[str, str] = {}
    metadata: dict[str, str] = {}
    kinds = _kinds
    for name, value, _ in headers:
        kind = kinds.get(name)
        if kind is None:
            kind = _kind_of(name)
        if kind == _PLAIN:
            metadata[name] = value
        elif kind == _OURS:
            ours[name] = value
        elif kind == _PSEUDO:
            if metadata or ours or name in pseudo:
                raise _malformed(f"{name} comes twice, or after other headers")
            pseudo[name] = value
        elif kind == _BINARY:
            metadata[name] = _binary(value)
        else:
            raise _malformed(f"{name!r} is for one connection of HTTP/1")
    path = pseudo.get(":path", "")
    if not headers.cut and not (":method" in pseudo and ":scheme" in pseudo and path):
        raise _malformed("a request has a method, a scheme and a path")
    if ours.get("te", "trailers") != "trailers":
        raise _malformed("te can only be 'trailers'")
    written = ours.get("grpc-timeout", "")
    timeout = _TIMEOUT.fullmatch(written)
    refusal = None
    if headers.cut:
        refusal = CallRefused(CallStatus.RESOURCE_EXHAUSTED, "headers that are too large")
    elif written and timeout is None:
        refusal = CallRefused(CallStatus.INTERNAL, "grpc-timeout is no time")
    return RequestHead(
        path=path,
        metadata=metadata,
        timeout_s=int(timeout[1]) * _SECONDS[timeout[2]] if timeout is not None else None,
        encoding=ours.get("grpc-encoding", IDENTITY),
        content_length=_content_length(ours.get("content-length")),
        http_status=200 if headers.cut else _http_status(pseudo, ours),
        refusal=refusal,
    )


def check_trailers(headers: HeaderList) -> None:
    """Headers after the last message."""
    for name, _, _ in headers:
        if name.startswith(":") or _NAME.fullmatch(name) is None:
            raise _malformed("a header that cannot come last")


def _content_length(written: str | None) -> int | None:
    if written is None:
        return None
    if not (written.isascii() and written.isdigit() and len(written) < 20):
        raise _malformed("a content-length that is no number")
    return int(written)


def _http_status(pseudo: dict[str, str], ours: dict[str, str]) -> int:
    if pseudo[":method"] != "POST":
        return 405
    kind = ours.get("content-type", "")
    return 200 if kind == GRPC or kind.startswith((f"{GRPC}+", f"{GRPC};")) else 415


def _binary(value: str) -> str:
    """Of several the last; what is no base64 stays as it is."""
    last = value.rpartition(",")[2].strip()
    try:
        return base64.b64decode(last + "=" * (-len(last) % 4), validate=True).decode("latin-1")
    except (ValueError, binascii.Error):
        return value
