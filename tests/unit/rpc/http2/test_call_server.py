"""Callers that mean harm, on real sockets: what they can hold, for how long, and what it costs."""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from ternmq.gateway.offered_tls import OfferedTls
from ternmq.rpc.http2.call_server import CallServer, serving_calls
from ternmq.rpc.http2.calls import CallStatus
from ternmq.rpc.http2.frames import (
    HEAD,
    PREFACE,
    FaultCode,
    FrameKind,
    Http2Setting,
    settings_frame,
    window_frame,
)
from ternmq.rpc.http2.hpack import HeaderDecoder, encode_headers
from ternmq.rpc.http2.limits import CallLimits
from ternmq.security.tls.authority import Authority, CertificateOrder
from ternmq.security.tls.certificate_files import CertificateFiles
from tests.unit.rpc.http2.called import TestedMethods
from tests.unit.rpc.http2.frames_of import HELLO, Seen, data, frame, headers, message, reset
from tests.waiting import until

WIDE = PREFACE + settings_frame({Http2Setting.INITIAL_WINDOW_SIZE: 2**30}) + window_frame(0, 2**30)
SHORT = {"sweep_s": 0.02, "linger_s": 0.2}


class RawCaller:
    """A socket, and the frames that come over it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = HeaderDecoder(65_536)

    def send(self, *parts: bytes) -> None:
        self._writer.write(b"".join(parts))

    async def next(self) -> Seen | None:
        """None: it was hung up on."""
        async with asyncio.timeout(20):
            try:
                high, low, kind, flags, stream = HEAD.unpack(await self._reader.readexactly(9))
                return kind, flags, stream, await self._reader.readexactly(high << 8 | low)
            except (asyncio.IncompleteReadError, ConnectionError):
                return None

    async def until(self, kind: FrameKind, stream: int | None = None) -> bytes:
        """The payload of the next frame of a kind."""
        while True:
            seen = await self.next()
            assert seen is not None, f"hung up before {kind.name}"
            if seen[0] == kind and stream in (None, seen[2]):
                return seen[3]

    async def goodbye(self) -> tuple[FaultCode, str]:
        """Why it is sent away; it is."""
        payload = await self.until(FrameKind.GOAWAY)
        while await self.next() is not None:
            pass
        return FaultCode(int.from_bytes(payload[4:8], "big")), payload[8:].decode()

    async def status(self, stream: int) -> CallStatus:
        """How a call ended that had no messages."""
        read = dict(
            header[:2]
            for header in self._decoder.decode(await self.until(FrameKind.HEADERS, stream))
        )
        return CallStatus(int(read["grpc-status"]))

    async def rest(self) -> bytes:
        async with asyncio.timeout(20):
            return await self._reader.read()

    async def close(self) -> None:
        self._writer.close()


@pytest.fixture
def table() -> TestedMethods:
    return TestedMethods()


@asynccontextmanager
async def called(
    table: TestedMethods, **limits: float
) -> AsyncIterator[tuple[CallServer, RawCaller]]:
    made = CallLimits(**{**SHORT, **limits})  # type: ignore[arg-type]
    async with serving_calls(table, "127.0.0.1:0", made) as server:
        raw = await connected(server)
        yield server, raw
        await raw.close()
        await until(lambda: not (server.calls or server.connections), "everybody is gone")
        assert (server.held.requests, server.held.answers) == (0, 0)


async def connected(server: CallServer) -> RawCaller:
    return RawCaller(*await asyncio.open_connection("127.0.0.1", server.port))


def path(name: str) -> list[tuple[str, str]]:
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", f"/t/{name}"),
        ("content-type", "application/grpc"),
    ]


def call(stream: int, name: str, body: bytes | None = b"") -> bytes:
    """A whole request, or with None its headers."""
    head = frame(FrameKind.HEADERS, 4, stream, encode_headers(path(name)))
    return head if body is None else head + data(stream, message(body), end=True)


async def test_a_caller_without_first_words_is_sent_away(table: TestedMethods) -> None:
    async with called(table, arrive_s=0.2) as (_, raw):
        assert "first words" in (await raw.goodbye())[1]


async def test_a_frame_without_an_end_is_not_waited_for(table: TestedMethods) -> None:
    async with called(table, half_s=0.2) as (_, raw):
        raw.send(HELLO, headers(1), data(1, bytes(100))[:20])

        assert "not finished" in (await raw.goodbye())[1]


async def test_headers_without_an_end_are_not_waited_for(table: TestedMethods) -> None:
    async with called(table, half_s=0.2) as (_, raw):
        raw.send(HELLO, frame(FrameKind.HEADERS, 0, 1, encode_headers(path("echo"))))

        assert "not finished" in (await raw.goodbye())[1]


async def test_a_silent_caller_is_asked_and_then_sent_away(table: TestedMethods) -> None:
    async with called(table, ping_after_s=0.1, silent_s=0.4) as (_, raw):
        raw.send(HELLO)
        await raw.until(FrameKind.PING)

        assert "silent" in (await raw.goodbye())[1]


async def test_a_quiet_caller_that_answers_pings_stays(table: TestedMethods) -> None:
    async with called(table, ping_after_s=0.1, silent_s=0.4) as (_, raw):
        raw.send(HELLO)
        for _ in range(6):
            raw.send(frame(FrameKind.PING, 1, 0, await raw.until(FrameKind.PING)))
        raw.send(call(1, "echo", b"still here"))

        assert await raw.until(FrameKind.DATA) == message(b"still here")


async def test_a_browser_is_told_what_this_port_is(table: TestedMethods) -> None:
    async with called(table) as (_, raw):
        raw.send(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")

        assert b"speaks gRPC" in await raw.rest()


@pytest.mark.parametrize("count", [b"100000 5000", b"1 20000000"])
async def test_a_caller_whose_window_stays_shut_is_sent_away(
    table: TestedMethods, count: bytes
) -> None:
    """Slow reader: the answer waits, one message at most is made beyond what fits."""
    async with called(table, stalled_s=0.3) as (server, raw):
        raw.send(
            PREFACE + settings_frame({Http2Setting.INITIAL_WINDOW_SIZE: 0}), call(1, "many", count)
        )
        await until(lambda: server.held.answers > 0, "an answer waits")

        assert "not read" in (await raw.goodbye())[1]
        assert table.made == 1


async def test_a_caller_that_does_not_read_its_socket_holds_one_call(table: TestedMethods) -> None:
    """Its windows are wide open: the socket says that it does not read."""
    async with called(table, stalled_s=1.0) as (server, raw):
        raw.send(WIDE, call(1, "many", b"1000000 10000"))
        await until(lambda: not server.connections, "it is sent away")

        assert table.made < 3_000
        assert table.cancelled == 1


async def test_answers_that_nobody_reads_are_bounded_for_all_together(
    table: TestedMethods,
) -> None:
    async with called(table, answers_held_max=1_000_000) as (server, raw):
        raw.send(PREFACE + settings_frame({Http2Setting.INITIAL_WINDOW_SIZE: 0}))
        for number in range(1, 11, 2):
            raw.send(call(number, "many", b"1 400000"))
        await raw.until(FrameKind.HEADERS, 1)

        assert await raw.status(5) is CallStatus.RESOURCE_EXHAUSTED
        assert server.held.answers < 1_000_000


async def test_requests_that_are_never_whole_are_bounded_for_all_together(
    table: TestedMethods,
) -> None:
    async with called(table, requests_held_max=1_000_000) as (server, raw):
        raw.send(HELLO)
        for number in range(1, 11, 2):
            raw.send(call(number, "echo", None), data(number, b"\0" + struct.pack(">I", 2**20)))
            raw.send(*(data(number, bytes(16_000)) for _ in range(14)))

        assert await raw.status(9) is CallStatus.RESOURCE_EXHAUSTED
        assert server.held.requests < 1_000_000


async def test_a_size_that_is_a_lie_is_refused_before_anything_is_held(
    table: TestedMethods,
) -> None:
    async with called(table) as (server, raw):
        raw.send(HELLO, call(1, "echo", None), data(1, b"\0\xff\xff\xff\xffx"))

        assert await raw.status(1) is CallStatus.RESOURCE_EXHAUSTED
        await until(lambda: not server.held.requests, "nothing is held")


@pytest.mark.parametrize(
    "body",
    [b"", b"\0", b"\0\0\0\0\x05abc", message(b"a") + message(b"b"), message(b"a") + b"x"],
    ids=["none", "half a head", "half", "two", "one and a bit"],
)
async def test_a_request_that_is_not_one_message_is_refused(
    table: TestedMethods, body: bytes
) -> None:
    async with called(table) as (_, raw):
        raw.send(HELLO, call(1, "echo", None), data(1, body, end=True))

        assert await raw.status(1) is CallStatus.INTERNAL


async def test_calls_of_all_connections_are_bounded_and_refused_ones_may_come_again(
    table: TestedMethods,
) -> None:
    async with called(table, calls_max=3) as (server, raw):
        other = await connected(server)
        raw.send(HELLO, call(1, "wait"), call(3, "wait"))
        other.send(HELLO, call(1, "wait"))
        await until(lambda: table.began == 3, "three run")
        other.send(call(3, "echo"))
        code = await other.until(FrameKind.RST_STREAM, 3)
        assert int.from_bytes(code, "big") == FaultCode.REFUSED_STREAM

        raw.send(reset(1))
        await until(lambda: server.calls == 2, "one has ended")
        other.send(call(5, "echo", b"x"))
        assert await other.until(FrameKind.DATA, 5) == message(b"x")
        await other.close()


async def test_calls_that_were_given_up_count_until_their_handlers_have_ended(
    table: TestedMethods,
) -> None:
    """Rapid reset: what runs is bounded, however many streams come and go."""
    async with called(table, streams_max=4) as (_, raw):
        raw.send(HELLO)
        for number in range(1, 801, 2):
            raw.send(call(number, "wait"), reset(number))
        raw.send(call(801, "echo", b"x"), frame(FrameKind.PING, 0, 0, b"rapidly."))
        assert await raw.until(FrameKind.PING) == b"rapidly."

        assert table.began <= 4


async def test_connections_are_bounded(table: TestedMethods) -> None:
    async with called(table, connections_max=2) as (server, raw):
        raw.send(HELLO)
        await raw.until(FrameKind.SETTINGS)
        second, third = await connected(server), await connected(server)
        await second.until(FrameKind.SETTINGS)

        assert await third.next() is None
        await second.close()
        await third.close()


async def test_a_server_that_stops_says_so_and_answers_what_is_nearly_done(
    table: TestedMethods,
) -> None:
    made = CallLimits(linger_s=0.3)
    async with serving_calls(table, "127.0.0.1:0", made) as server:
        raw = await connected(server)
        raw.send(HELLO, call(1, "wait"), call(3, "echo", b"x"))
        await until(lambda: table.began == 1, "a call runs")

    assert await raw.until(FrameKind.DATA, 3) == message(b"x")
    code, text = await raw.goodbye()
    assert (code, text) == (FaultCode.NO_ERROR, "this server is stopping")
    assert table.cancelled == 1
    await raw.close()


# TLS and plain text on one port.


def trusting(protocols: Sequence[str] = ("h2",)) -> ssl.SSLContext:
    """As RocketMQ's own clients: whoever answers is the right one."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(list(protocols))
    return context


def offered(files: CertificateFiles | None = None) -> OfferedTls:
    return OfferedTls(files, ("h2",), ("127.0.0.1", "localhost"))


async def test_one_port_takes_tls_and_plain_text(table: TestedMethods) -> None:
    async with serving_calls(table, "127.0.0.1:0", CallLimits(), offered()) as server:
        plain = await connected(server)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting())
        secure = RawCaller(reader, writer)
        for raw in (plain, secure):
            raw.send(HELLO, call(1, "echo", b"hello"))
            assert await raw.until(FrameKind.DATA, 1) == message(b"hello")
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        assert [each.secure for each in table.calls] == [False, True]
        await plain.close()
        await secure.close()


async def test_a_certificate_that_is_given_is_shown_and_a_new_one_holds_for_the_next(
    table: TestedMethods, tmp_path: Path
) -> None:
    authority = Authority.make(tmp_path / "ca", "of-a-test")
    order = CertificateOrder(name="gateway", hosts=["127.0.0.1", "localhost"])
    pair = authority.issue(order)
    files = CertificateFiles(certificate=pair.certificate, key=pair.key)
    trusted = grpc.ssl_channel_credentials(authority.file.read_bytes())
    async with serving_calls(table, "127.0.0.1:0", CallLimits(), offered(files)) as server:
        address = f"localhost:{server.port}"
        async with grpc.aio.secure_channel(address, trusted) as channel:
            body = bytes(200_000)
            assert await channel.unary_unary("/t/echo")(body, timeout=20) == body
        shown = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", server.port))
        authority.issue(order, replace=True)
        later = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", server.port))
        assert shown != later
        pair.certificate.write_text("no certificate")
        kept = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", server.port))
        assert kept == later


async def test_who_says_nothing_at_the_door_is_not_waited_for(table: TestedMethods) -> None:
    limits = CallLimits(arrive_s=0.2, linger_s=0.2)
    async with serving_calls(table, "127.0.0.1:0", limits, offered()) as server:
        silent = await connected(server)
        assert await silent.next() is None
        await silent.close()
        broken = await connected(server)
        broken.send(b"\x16\x03\x01\xff\xff" + bytes(2_000))
        assert b"grpc" not in await broken.rest()
        await broken.close()
        assert not server.connections
