"""The interop client of grpc-go, which nobody here wrote, against our HTTP/2 and gRPC.

`grpc-interop-client` is taken from the path, or built with go; without both the test is skipped.
Its cases that ask for headers back, compression or accounts are not for what is served here.
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator

import pytest

from ternmq.rpc.http2.call_server import serving_calls
from ternmq.rpc.http2.calls import CalledMethod, CallKind, CallRefused, CallStatus, RemoteCall

PACKAGE = "google.golang.org/grpc/interop/client"
VERSION = "v1.72.0"
SERVICE = "/grpc.testing.TestService/"
SIZE_MAX = 2**20
CASES = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "cancel_after_begin",
    "cancel_after_first_response",
    "timeout_on_sleeping_server",
    "status_code_and_message",
    "special_status_message",
    "unimplemented_method",
    "unimplemented_service",
]

Fields = dict[int, list[int | bytes]]


def read_fields(payload: bytes) -> Fields:
    """The fields of a message: numbers, and bytes of whatever has a length."""
    found: Fields = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = payload[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(payload):
        tag, value = number(), number()
        if tag & 7 == 2:
            found.setdefault(tag >> 3, []).append(payload[at : at + value])
            at += value
        else:
            found.setdefault(tag >> 3, []).append(value)
    return found


def varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def part(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def sized(size: int) -> bytes:
    """An answer with a payload of zeros."""
    return part(1, part(2, bytes(size)))


def whole(fields: Fields, field: int) -> int:
    value = fields.get(field, [0])[-1]
    assert isinstance(value, int)
    return value


def inner(fields: Fields, field: int) -> list[Fields]:
    return [read_fields(each) for each in fields.get(field, []) if isinstance(each, bytes)]


def obey_status(fields: Fields) -> None:
    for wanted in inner(fields, 7):
        [text] = wanted.get(2, [b""])
        assert isinstance(text, bytes)
        if whole(wanted, 1):
            raise CallRefused(CallStatus(whole(wanted, 1)), text.decode())


class InteropService:
    """What the client calls."""

    def __init__(self) -> None:
        both = {"StreamingInputCall": self.gather, "FullDuplexCall": self.talk}
        unary = {"EmptyCall": self.empty, "UnaryCall": self.unary}
        self._methods = {
            SERVICE + name: CalledMethod(
                kind=CallKind.BOTH_WAYS, request_size_max=SIZE_MAX, both_ways=each
            )
            for name, each in both.items()
        }
        for name, handler in unary.items():
            self._methods[SERVICE + name] = CalledMethod(
                kind=CallKind.UNARY, request_size_max=SIZE_MAX, unary=handler
            )
        self._methods[SERVICE + "StreamingOutputCall"] = CalledMethod(
            kind=CallKind.STREAMED, request_size_max=SIZE_MAX, streamed=self.stream
        )

    def method(self, path: str) -> CalledMethod | None:
        return self._methods.get(path)

    async def empty(self, call: RemoteCall, request: bytes) -> bytes:
        return b""

    async def unary(self, call: RemoteCall, request: bytes) -> bytes:
        fields = read_fields(request)
        obey_status(fields)
        return sized(whole(fields, 2))

    async def stream(self, call: RemoteCall, request: bytes) -> AsyncIterator[bytes]:
        fields = read_fields(request)
        obey_status(fields)
        for wanted in inner(fields, 2):
            await asyncio.sleep(whole(wanted, 2) / 1e6)
            yield sized(whole(wanted, 1))

    async def gather(
        self, call: RemoteCall, messages: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        total = 0
        async for message in messages:
            for payload in inner(read_fields(message), 1):
                [body] = payload.get(2, [b""])
                assert isinstance(body, bytes)
                total += len(body)
        yield b"\x08" + varint(total)

    async def talk(self, call: RemoteCall, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for message in messages:
            async for answer in self.stream(call, message):
                yield answer


@pytest.fixture(scope="module")
def interop_client(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = shutil.which("grpc-interop-client")
    if found is not None:
        return found
    if shutil.which("go") is None:
        pytest.skip("go, which builds the interop client of grpc-go, is not installed")
    folder = tmp_path_factory.mktemp("interop")
    built = subprocess.run(
        ["go", "install", f"{PACKAGE}@{VERSION}"],
        env={**os.environ, "GOBIN": str(folder), "GOFLAGS": "-buildvcs=false"},
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        pytest.skip(f"go cannot build the interop client here: {built.stderr[-200:]}")
    return str(folder / "client")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES)
async def test_the_interop_client_is_content(interop_client: str, case: str) -> None:
    async with serving_calls(InteropService(), "127.0.0.1:0") as server:
        process = await asyncio.create_subprocess_exec(
            interop_client,
            "--server_host=127.0.0.1",
            f"--server_port={server.port}",
            f"--test_case={case}",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        said, _ = await process.communicate()

    assert process.returncode == 0, said.decode()[-1_000:]
