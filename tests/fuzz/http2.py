"""Hostile HTTP/2: `python -m tests.fuzz.http2 --inputs 1000000 --first 0` (a part of `make fuzz`).

An input is everything that one caller sends: honest calls that were cut, repeated, mixed up or
damaged, frames of every kind with wrong sizes, flags and streams, header blocks of chance, chance
itself. Each goes into a connection of one server, in pieces. Afterwards nothing may be held, no
handler may run, and at the end an honest call is answered. The size of the process is looked at:
it must not grow with the number of inputs. The exit code is 1 where there was anything.
"""

import argparse
import asyncio
import resource
import sys
import time
from collections.abc import AsyncIterator
from random import Random
from typing import Any

from ternmq.rpc.http2.call_connection import CallConnection
from ternmq.rpc.http2.call_server import CallServer
from ternmq.rpc.http2.calls import CalledMethod, CallKind, RemoteCall
from ternmq.rpc.http2.frames import PREFACE, Http2Setting, pack_head, settings_frame, window_frame
from ternmq.rpc.http2.hpack import encode_headers
from ternmq.rpc.http2.limits import CallLimits

GROWTH_MAX = 64 * 1024 * 1024
WARM = 20_000
"""Inputs after which the process has its size."""
HELLO = PREFACE + settings_frame({})
PATHS = ("/f/echo", "/f/many", "/f/talk", "/f/none", "/")


class FuzzedMethods:
    """One of each kind."""

    def __init__(self) -> None:
        self._methods = {
            "/f/echo": CalledMethod(kind=CallKind.UNARY, request_size_max=100_000, unary=self.echo),
            "/f/many": CalledMethod(
                kind=CallKind.STREAMED, request_size_max=1_000, streamed=self.many
            ),
            "/f/talk": CalledMethod(
                kind=CallKind.BOTH_WAYS, request_size_max=1_000, both_ways=self.talk
            ),
        }

    def method(self, path: str) -> CalledMethod | None:
        return self._methods.get(path)

    async def echo(self, call: RemoteCall, request: bytes) -> bytes:
        await asyncio.sleep(0)
        return request

    async def many(self, call: RemoteCall, request: bytes) -> AsyncIterator[bytes]:
        for _ in range(20):
            yield request * 100

    async def talk(self, call: RemoteCall, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for message in messages:
            yield message


class DroppedTransport(asyncio.Transport):
    """A socket whose other side is nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.closing = False
        self.written = b""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: Any) -> None:
        self.written = bytes(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def abort(self) -> None:
        self.closing = True

    close = abort


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return pack_head(len(payload), kind, flags, stream) + payload


def one_input(random: Random) -> bytes:
    """What one caller sends."""
    frames = [_frame(random) for _ in range(random.randrange(1, 12))]
    if random.random() < 0.2:
        random.shuffle(frames)
    sent = bytearray(b"".join(([HELLO] if random.random() < 0.95 else []) + frames))
    for _ in range(random.choice((0, 0, 0, 1, 3))):
        at = random.randrange(len(sent)) if sent else 0
        if sent and random.random() < 0.5:
            sent[at] = random.randrange(256)
        else:
            del sent[at : at + random.randrange(1, 9)]
    return bytes(sent)


def _frame(random: Random) -> bytes:
    stream = random.choice((1, 1, 1, 3, 5, 7, 9, 0, 2, 2**31 - 1))
    made = random.random()
    if made < 0.35:
        return _call(random, stream)
    if made < 0.55:
        size = random.choice((0, 1, 5, 50, 300, 3_000))
        head = b"\0" + random.choice((size, size, size + 1, 2**31)).to_bytes(4, "big")
        return frame(0, random.choice((0, 1, 1, 8, 9)), stream, head + random.randbytes(size))
    if made < 0.65:
        return window_frame(stream, random.choice((0, 1, 1_000, 2**31 - 1)))
    if made < 0.75:
        value = random.choice((0, 1, 16_384, 65_536, 2**31 - 1, 2**32 - 1))
        return settings_frame({random.choice(list(Http2Setting)): value})
    if made < 0.82:
        return frame(3, 0, stream, random.randrange(2**32).to_bytes(4, "big"))
    kind, flags = random.choice((*range(11), 200)), random.choice((0, 1, 4, 5, 8, 0x20, 255))
    return frame(kind, flags, stream, random.randbytes(random.choice((0, 1, 4, 5, 8, 40))))


def _call(random: Random, stream: int) -> bytes:
    if random.random() < 0.2:
        return frame(1, random.choice((0, 4, 5)), stream, random.randbytes(random.randrange(80)))
    headers = [
        (":method", random.choice(("POST", "POST", "POST", "GET", ""))),
        (":scheme", "http"),
        (":path", random.choice(PATHS)),
        ("content-type", random.choice(("application/grpc", "application/grpc", "text/plain"))),
        ("grpc-timeout", random.choice(("1S", "1n", "0m", "x", "99999999H"))),
        ("x-bin", random.choice(("AAAA", "!", "A"))),
        ("content-length", random.choice(("5", "0", "x"))),
    ]
    del headers[random.randrange(4, 8) :]
    if random.random() < 0.1:
        random.shuffle(headers)
    block = encode_headers(headers)
    if random.random() < 0.2:
        at = random.randrange(len(block))
        return frame(1, random.choice((0, 1)), stream, block[:at]) + frame(9, 4, stream, block[at:])
    return frame(1, random.choice((4, 4, 5)), stream, block)


async def attack(server: CallServer, seed: int) -> None:
    """One input; raises where something is left, or was not foreseen."""
    random = Random(seed)
    sent, at = one_input(random), 0
    transport = DroppedTransport()
    connection = CallConnection(server)
    connection.connection_made(transport)
    while at < len(sent):
        size = random.choice((1, 9, 40, 400, 10_000))
        connection.data_received(sent[at : at + size])
        at += size
        if random.random() < 0.3:
            await asyncio.sleep(0)
    for _ in range(random.choice((0, 3))):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    for _ in range(8):
        if not server.calls:
            break
        await asyncio.sleep(0)
    left = (server.calls, server.held.requests, server.held.answers, len(server.connections))
    assert left == (0, 0, 0, 0), f"seed {seed} left {left}"
    assert len(server.deadlines) == 0, f"seed {seed} left a deadline"


async def answers(server: CallServer) -> bool:
    """Is an honest call answered?"""
    transport = DroppedTransport()
    connection = CallConnection(server)
    connection.connection_made(transport)
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/f/echo"),
        ("content-type", "application/grpc"),
    ]
    body = b"\0\0\0\0\x05hello"
    connection.data_received(HELLO + frame(1, 4, 1, encode_headers(headers)) + frame(0, 1, 1, body))
    for _ in range(10):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    return body in transport.written


async def attack_many(first: int, inputs: int) -> int:
    """Returns by how many bytes the process grew after it had its size."""
    server = CallServer(FuzzedMethods(), CallLimits(), asyncio.get_running_loop())
    before = 0
    for seed in range(first, first + inputs):
        if seed - first == min(WARM, inputs // 2):
            before = _size()
        await attack(server, seed)
    assert await answers(server), "an honest call is not answered any more"
    server.deadlines.close()
    return _size() - before


def _size() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    began = time.monotonic()
    grown = asyncio.run(attack_many(given.first, given.inputs))
    took = time.monotonic() - began
    print(f"{given.inputs} inputs in {took:.0f} s; the process grew by {grown} bytes")  # noqa: T201
    return int(grown > GROWTH_MAX)


if __name__ == "__main__":
    sys.exit(main())
