"""Health checks over a real socket."""

import asyncio
import socket

import pytest

import ternmq
from ternmq.cli.apps.health import HEAD_MAX, health_server


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_live_is_always_said_and_ready_when_it_is() -> None:
    ready = False
    port = free_port()
    async with health_server("127.0.0.1", port, lambda: ready):
        live = await ask(port, b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
        not_yet = await ask(port, b"GET /ready?verbose=1 HTTP/1.1\r\n\r\n")
        ready = True
        now = await ask(port, b"GET /ready HTTP/1.1\r\n\r\n")
        head = await ask(port, b"HEAD /ready HTTP/1.1\r\n\r\n")
        other = await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")
        post = await ask(port, b"POST /ready HTTP/1.1\r\n\r\n")

    assert live.startswith(b"HTTP/1.1 200 OK\r\n")
    assert live.endswith(b"\r\n\r\nlive\n")
    assert not_yet.startswith(b"HTTP/1.1 503 ")
    assert now.startswith(b"HTTP/1.1 200 ")
    assert head.endswith(b"\r\n\r\n")
    assert other.startswith(b"HTTP/1.1 404 ")
    assert post.startswith(b"HTTP/1.1 405 ")


async def test_garbage_and_endless_headers_harm_nobody() -> None:
    port = free_port()
    async with health_server("127.0.0.1", port, lambda: True):
        endless = await ask(port, b"GET /live HTTP/1.1\r\n" + b"x" * 3 * HEAD_MAX)
        garbage = await ask(port, b"\x00\xff\r\n\r\n")
        after = await ask(port, b"GET /live HTTP/1.1\r\n\r\n")

    assert b"200" not in endless
    assert garbage.startswith(b"HTTP/1.1 405 ")
    assert after.startswith(b"HTTP/1.1 200 ")


async def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(ternmq.Unavailable, match=f"cannot listen on 127.0.0.1:{port}"):
            async with health_server("127.0.0.1", port, lambda: True):
                pass
