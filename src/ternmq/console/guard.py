"""What stands before every page and every call: whom a browser was sent by, and what it may load.

Without logins, whoever reaches the port may do everything, so it listens on loopback only. That is
not enough: a page from elsewhere, open in a browser on this machine, can send requests here too, or
let its own name point to 127.0.0.1. Therefore the `Host` must be a name of this machine's loopback
(or one that was named at the start), and a request that changes something must not come from
another site: `Sec-Fetch-Site` and `Origin` say so, and browsers do not let pages forge them.
Programs send neither. Every answer says that nothing may be loaded from elsewhere, or framed.
"""

from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ternmq.api.problems import MEDIA_TYPE
from ternmq.rpc.address import is_loopback

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
OWN_SITES = ("same-origin", "none")
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def why_refused(method: str, headers: Headers, hosts: Collection[str]) -> str:
    """Empty if a request may pass."""
    host = headers.get("host", "")
    name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
    if not (is_loopback(name) or name.lower() in hosts):
        return f"the Host {host[:80]!r} is not this console's: use 127.0.0.1"
    if method in SAFE_METHODS:
        return ""
    site = headers.get("sec-fetch-site")
    if site is not None and site not in OWN_SITES:
        return "this request was sent by a page of another site"
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        return f"this request was sent by a page of {origin[:80]}"
    return ""


class WebGuard:
    """Wraps an application."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] = ()) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = why_refused(scope["method"], Headers(scope=scope), self._hosts)
        if refused:
            problem = {"title": "Forbidden", "status": 403, "detail": refused, "code": "forbidden"}
            await JSONResponse(problem, 403, media_type=MEDIA_TYPE)(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, guarded)
