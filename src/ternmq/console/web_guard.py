"""What stands before every page and every call: whom a browser was sent by, and what it may load.

Without logins, whoever reaches the port may do everything, so it listens on loopback only. That is
not enough: a page from elsewhere, open in a browser on this machine, can send requests here too, or
let its own name point to 127.0.0.1. Therefore the `Host` must be a name of this machine's loopback;
where people log in it may be any, as a cookie is of the host that set it. A request that changes
something must not come from another site: `Sec-Fetch-Site` and `Origin` say so, and browsers do not
let pages forge them. Programs send neither, and a token proves that no browser was tricked. Every
answer says that nothing may be loaded from elsewhere, or framed.
"""

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


def why_refused(method: str, headers: Headers, *, any_host: bool = False) -> str:
    """Empty if a request may pass."""
    host = headers.get("host", "")
    name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
    if not (any_host or is_loopback(name)):
        return f"the Host {host[:80]!r} is not this console's: use 127.0.0.1"
    if method in SAFE_METHODS or by_token(headers):
        return ""
    site = headers.get("sec-fetch-site")
    if site is not None and site not in OWN_SITES:
        return "this request was sent by a page of another site"
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        return f"this request was sent by a page of {origin[:80]}"
    return ""


def by_token(headers: Headers) -> bool:
    """A token is no cookie: no browser sends it by itself."""
    return headers.get("authorization", "").lower().startswith("bearer ")


class WebGuard:
    """Wraps an application."""

    def __init__(self, app: ASGIApp, *, any_host: bool = False) -> None:
        self._app = app
        self._any_host = any_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = why_refused(scope["method"], Headers(scope=scope), any_host=self._any_host)
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
