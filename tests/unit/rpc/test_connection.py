"""The calling side: pipelining, failures, heartbeats, forks, and servers that misbehave."""

import asyncio
import os
import signal
import socket

import pytest
from structlog.testing import capture_logs

from ternmq.core.errors import (
    BadRequest,
    Closed,
    NotMaster,
    ProtocolError,
    TernError,
    TooLarge,
    TopicNotFound,
    Unavailable,
)
from ternmq.core.units import MIB
from ternmq.rpc import connection as connection_module
from ternmq.rpc.address import join_address
from ternmq.rpc.connection import Connection, request
from ternmq.wire.frame import FRAME_SIZE_MAX, HEADER, Frame, pack_header
from ternmq.wire.messages.hello import Empty, Notice, failure
from ternmq.wire.messages.topics import TopicNamed
from ternmq.wire.numbers import Command, Flag
from ternmq.wire.record import pack, unpack
from tests.waiting import until

from .peers import (
    HELLO,
    WAIT,
    Echo,
    Script,
    a_frame,
    bad_server,
    connected,
    serving,
    welcome_frame,
)


async def opened(address: str) -> Connection:
    return await Connection.open(address, HELLO, timeout=WAIT)


async def test_many_calls_at_once_each_get_their_own_answer() -> None:
    async with serving(Echo()) as listener:
        connection = await connected(listener)
        calls = [connection.call(Command.PUBLISH, b"%d" % number) for number in range(3_000)]
        assert connection.pending == 3_000
        answers = await asyncio.gather(*calls)
        await until(lambda: connection.pending == 0)  # A heartbeat may be under way.
        await connection.close()

    assert [int(answer) for answer in answers] == list(range(3_000))


async def test_calls_of_one_turn_of_the_loop_leave_in_one_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writes: list[int] = []
    async with serving(Echo()) as listener:
        connection = await connected(listener)

        class Counting:
            def __init__(self, transport: asyncio.Transport) -> None:
                self._transport = transport

            def write(self, data: bytes) -> None:
                writes.append(len(data))
                self._transport.write(data)

            def is_closing(self) -> bool:
                return self._transport.is_closing()

        with monkeypatch.context() as patched:
            patched.setattr(connection, "_transport", Counting(connection._transport))
            answers = await asyncio.gather(
                *(connection.call(Command.PUBLISH, b"x") for _ in range(100))
            )
        await connection.close()

    assert len(answers) == 100
    assert writes == [100 * 17]


async def test_several_buffers_are_one_payload() -> None:
    async with serving(Echo()) as listener:
        connection = await connected(listener)
        small = await connection.call(Command.PUBLISH, b"a", bytearray(b"b"), memoryview(b"c"))
        large = await connection.call(Command.PUBLISH, b"a" * 50_000, b"", bytes(50_000))
        await connection.close()

    assert small == b"abc"
    assert large == b"a" * 50_000 + bytes(50_000)


async def test_one_way_requests_arrive_in_order_with_calls() -> None:
    handler = Echo()
    async with serving(handler) as listener:
        connection = await connected(listener)
        connection.send(Command.PUBLISH, b"first")
        await connection.call(Command.PUBLISH, b"second")
        await connection.close()
        connection.send(Command.PUBLISH, b"dropped without a word")

    assert [bytes(frame.payload) for frame in handler.frames] == [b"first", b"second"]


async def test_a_request_larger_than_a_frame_is_refused_before_it_is_sent() -> None:
    async with serving(Echo()) as listener:
        connection = await connected(listener)
        with pytest.raises(TooLarge):
            connection.call(Command.PUBLISH, bytes(FRAME_SIZE_MAX), b"x")
        assert await connection.call(Command.PUBLISH, b"still fine") == b"still fine"
        assert connection.pending == 0
        await connection.close()


async def test_request_speaks_msgpack_both_ways() -> None:
    async with serving(Echo()) as listener:
        connection = await connected(listener)
        named = TopicNamed(name="t")
        answer = await request(connection, Command.TOPIC_DELETE, named, TopicNamed, timeout=WAIT)
        with pytest.raises(Unavailable, match=r"did not answer READ within 0\.05 s"):
            await request(connection, Command.READ, Empty(), Empty, timeout=0.05)
        await connection.close()

    assert answer == named


async def test_the_late_answer_to_a_cancelled_call_is_dropped() -> None:
    async with serving(Echo()) as listener:
        connection = await connected(listener)
        call = connection.call(Command.PUBLISH, b"nobody waits")
        call.cancel()

        assert await connection.call(Command.PUBLISH, b"next") == b"next"
        assert connection.pending == 0
        await connection.close()


async def test_losing_the_connection_fails_every_call_under_way_and_later_ones() -> None:
    handler = Echo()
    lost: list[TernError] = []
    async with serving(handler) as listener:
        connection = await connected(listener)
        connection.listen(lost=lost.append)
        calls = [connection.call(Command.READ, b"") for _ in range(5)]
        await until(lambda: len(handler.frames) == 5)
        handler.welcomed[0].abort()
        results = await asyncio.gather(*calls, return_exceptions=True)
        with pytest.raises(Unavailable, match="was lost"):
            await connection.call(Command.PUBLISH, b"")
        with pytest.raises(Unavailable, match="was lost"):
            await connection.drain()
        await connection.close()

    assert [type(result) for result in results] == [Unavailable] * 5
    assert len({id(result) for result in results}) == 5
    assert [type(error) for error in lost] == [Unavailable]


async def test_closing_fails_what_is_under_way_with_closed() -> None:
    async with serving(Echo()) as listener:
        connection = await connected(listener)
        call = connection.call(Command.READ, b"")
        await connection.close()
        await connection.close()

        with pytest.raises(Closed):
            await call
        assert connection.closed


async def test_nobody_there_says_what_to_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    with pytest.raises(Unavailable, match=f"cannot reach 127.0.0.1:{port} .*is a server running"):
        await opened(f"127.0.0.1:{port}")


async def test_a_server_that_accepts_and_says_nothing_times_out() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(Unavailable, match=r"did not answer within 0\.1 s"),
    ):
        await Connection.open(join_address(*server.getsockname()), HELLO, timeout=0.1)


async def test_an_address_without_a_port_is_refused() -> None:
    with pytest.raises(BadRequest, match="host:port"):
        await opened("localhost")


async def test_notices_reach_the_callback() -> None:
    handler = Echo()
    pushed: list[Frame] = []
    async with serving(handler) as listener:
        connection = await connected(listener)
        handler.welcomed[0].push(Command.NOTICE, pack(Notice(kind="stopping")))
        connection.listen(pushed=pushed.append)
        await until(lambda: pushed)
        await connection.close()

    assert unpack(pushed[0].payload, Notice) == Notice(kind="stopping")


async def test_pings_are_sent_and_answered() -> None:
    async with serving(Echo(heartbeat_ms=5), idle_timeout=0.1, sweep=0.02) as listener:
        connection = await connected(listener)
        [peer] = listener.peers
        await until(lambda: peer._correlation > 20)
        assert not connection.closed
        await connection.close()


async def test_a_server_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-open TCP: the peer is gone and no packet says so (row 17)."""
    monkeypatch.setattr(connection_module, "SILENCE_MIN", 0.1)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(welcome_frame(heartbeat_ms=20))
        await reader.read()

    async with bad_server(silent) as address:
        connection = await opened(address)
        with pytest.raises(Unavailable, match=f"nothing heard from {address}"):
            await connection.call(Command.READ, b"")
        await connection.close()


async def test_drain_waits_until_the_server_reads_again() -> None:
    release = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(welcome_frame())
        await writer.drain()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await release.wait()
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        while await reader.read(MIB):
            pass

    async with bad_server(slow) as address:
        connection = await opened(address)
        await connection.drain()
        for _ in range(40):
            connection.send(Command.PUBLISH, bytes(MIB))
        await until(lambda: connection._writable is not None)
        draining = asyncio.ensure_future(connection.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        release.set()
        async with asyncio.timeout(WAIT):
            await draining
        await connection.close()


BAD_ANSWERS = {
    "garbage": (bytes(64), "command 0"),
    "oversized": (HEADER.pack(2**31, Command.PUBLISH, Flag.ANSWER, 2), "at most"),
    "unasked": (a_frame(Command.PUBLISH, b"", correlation=9, flags=Flag.ANSWER), "nobody asked"),
    "twice": (
        2 * a_frame(Command.READ, b"", correlation=2, flags=Flag.ANSWER),
        "nobody asked",
    ),
    "unasked error": (
        a_frame(
            Command.READ,
            failure(TopicNotFound("x")),
            correlation=9,
            flags=Flag.ANSWER | Flag.ERROR,
        ),
        "nobody asked",
    ),
    "broken error": (
        a_frame(Command.READ, b"\xc1", correlation=2, flags=Flag.ANSWER | Flag.ERROR),
        "not a Failure",
    ),
    "a request": (a_frame(Command.PUBLISH, b"", correlation=2), "nobody asked"),
}


@pytest.mark.parametrize(("data", "complaint"), BAD_ANSWERS.values(), ids=BAD_ANSWERS)
async def test_a_misbehaving_server_is_left_with_a_protocol_error(
    data: bytes, complaint: str
) -> None:
    async def misbehave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(welcome_frame())
        await reader.readexactly(2 * 16)
        writer.write(data)
        await reader.read()

    lost: list[TernError] = []
    async with bad_server(misbehave) as address:
        connection = await opened(address)
        connection.listen(lost=lost.append)
        calls = [connection.call(Command.READ), connection.call(Command.READ)]
        await asyncio.gather(*calls, return_exceptions=True)
        assert connection.closed
        await connection.close()

    assert [type(error) for error in lost] == [ProtocolError]
    assert complaint in lost[0].message


async def test_the_reason_of_a_closing_server_is_what_calls_fail_with() -> None:
    async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(welcome_frame())
        reason = failure(Unavailable("the server is stopping"))
        writer.write(a_frame(Command.NOTICE, reason, correlation=0, flags=Flag.ERROR))

    async with bad_server(closes) as address:
        connection = await opened(address)
        with pytest.raises(Unavailable, match="the server is stopping"):
            await connection.call(Command.READ)
        await connection.close()


async def test_a_server_that_leads_no_more_is_left_without_a_warning() -> None:
    async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(welcome_frame())
        reason = failure(NotMaster("this server no longer has its role"))
        writer.write(a_frame(Command.NOTICE, reason, correlation=0, flags=Flag.ERROR))

    async with bad_server(closes) as address:
        with capture_logs() as logs:
            connection = await opened(address)
            with pytest.raises(Unavailable, match="no longer has its role"):
                await connection.call(Command.READ)
        await connection.close()
    assert [each["log_level"] for each in logs] == ["debug"], "a hand-over is no trouble"


BAD_WELCOMES = {
    "other protocol": (welcome_frame(protocol=7), "speaks protocol 7"),
    "no heartbeat": (welcome_frame(heartbeat_ms=0), "heartbeat of 0 ms"),
    "not msgpack": (
        a_frame(Command.HELLO, b"hi", correlation=1, flags=Flag.ANSWER),
        "not a Welcome",
    ),
    "HTTP": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "something else than TernMQ"),
}


@pytest.mark.parametrize(("data", "complaint"), BAD_WELCOMES.values(), ids=BAD_WELCOMES)
async def test_a_server_that_is_no_server_of_ours_is_told_apart(
    data: bytes, complaint: str
) -> None:
    async with bad_server(_answering(data)) as address:
        with pytest.raises(ProtocolError, match=complaint):
            await opened(address)


async def test_a_server_that_closes_instead_of_a_welcome_is_unavailable() -> None:
    async with bad_server(_closing) as address:
        with pytest.raises(Unavailable, match="was lost"):
            await opened(address)


async def test_an_answer_may_arrive_byte_by_byte() -> None:
    async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = a_frame(Command.READ, b"slow", correlation=2, flags=Flag.ANSWER)
        for byte in welcome_frame() + answer:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        await reader.read()

    async with bad_server(dripping) as address:
        connection = await opened(address)
        assert await connection.call(Command.READ) == b"slow"
        await connection.close()


async def test_an_answer_cut_off_in_the_middle_fails_the_call() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(welcome_frame() + pack_header(Command.READ, Flag.ANSWER, 2, 100) + b"half")

    async with bad_server(cut) as address:
        connection = await opened(address)
        with pytest.raises(Unavailable, match="was lost"):
            await connection.call(Command.READ)
        await connection.close()


async def test_opening_that_is_cancelled_leaves_no_connection_behind() -> None:
    accepted = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        assert await reader.read() == b""

    async with bad_server(silent) as address:
        opening = asyncio.ensure_future(opened(address))
        await asyncio.wait_for(accepted.wait(), WAIT)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening


async def test_a_forked_child_lets_go_of_the_socket_and_the_parent_goes_on() -> None:
    """Fork safety: neither the socket nor the parent's poll set is touched by the child."""
    async with serving(Echo()) as listener:
        connection = await connected(listener)
        waiting = connection.call(Command.READ, b"")
        child = os.fork()
        if child == 0:  # pragma: no cover - runs in the child
            try:
                connection.abandon()
                connection.abandon()
                ok = connection.closed and connection.call(Command.PUBLISH).exception() is not None
                os._exit(0 if ok else 1)
            finally:
                os._exit(2)
        status = await asyncio.to_thread(os.waitpid, child, 0)

        assert os.waitstatus_to_exitcode(status[1]) == 0
        assert await connection.call(Command.PUBLISH, b"parent") == b"parent"
        assert not waiting.done()
        await connection.close()
        with pytest.raises(Closed):
            await waiting


async def test_a_child_that_was_killed_does_not_take_the_connection_with_it() -> None:
    async with serving(Echo()) as listener:
        connection = await connected(listener)
        child = os.fork()
        if child == 0:  # pragma: no cover - runs in the child
            connection.abandon()
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.to_thread(os.waitpid, child, 0)

        assert await connection.call(Command.PUBLISH, b"parent") == b"parent"
        await connection.close()


def _answering(data: bytes) -> Script:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await reader.read()

    return answer


async def _closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()
