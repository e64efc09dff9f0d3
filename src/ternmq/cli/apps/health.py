"""Answers health checks over HTTP: `/live` always, `/ready` when handlers take messages.

For what starts and watches processes (Kubernetes, systemd, load balancers): 200 or 503 and one line
of text. It reads a request's first line and headers and nothing else, bounded in size and time, and
never tells anything about messages.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ternmq.core.errors import Unavailable

HEAD_MAX = 8192
WAIT_S = 5.0
CONNECTIONS_MAX = 64
REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}

IsReady = Callable[[], bool]


@asynccontextmanager
async def health_server(host: str, port: int | None, is_ready: IsReady) -> AsyncIterator[None]:
    """Answers while the block runs; None: nobody asked for one."""
    if port is None:
        yield
        return
    answers = _Answers(is_ready)
    try:
        server = await asyncio.start_server(answers.connected, host, port, limit=HEAD_MAX)
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {host}:{port} for health checks: {error.strerror}"
        ) from error
    async with server:
        yield


class _Answers:
    """One answer per connection."""

    def __init__(self, is_ready: IsReady) -> None:
        self._is_ready = is_ready
        self._open = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                async with asyncio.timeout(WAIT_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(head))
                    await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # No request, or not one of ours: nothing is owed to it.
        finally:
            self._open -= 1
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response(405, "only GET", head=False)
        status, text = 404, "only /live and /ready"
        if path == b"/live":
            status, text = 200, "live"
        elif path == b"/ready":
            status, text = (200, "ready") if self._is_ready() else (503, "not ready")
        return _response(status, text, head=method == b"HEAD")


def _response(status: int, text: str, *, head: bool) -> bytes:
    body = f"{text}\n"
    lines = [
        f"HTTP/1.1 {status} {REASONS[status]}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n" + ("" if head else body)).encode()
