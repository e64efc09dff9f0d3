"""Peers that break the rules: that one connection is closed with a reason, others do not notice.

Rows 14 to 20 of the fault list (peers.md 4.4): malformed, oversized, half-sent, silent, duplicated
frames, peers that never read, too many connections.
"""

import asyncio
import random
import socket

import pytest
from structlog.testing import capture_logs

from ternmq.core.errors import OverLimit, ProtocolError, Unavailable
from ternmq.core.units import KIB, MIB
from ternmq.rpc.limits import HELLO_SIZE_MAX
from ternmq.rpc.server import Listener
from ternmq.wire.frame import FRAME_SIZE_MAX, HEADER, pack_header
from ternmq.wire.messages.hello import Hello
from ternmq.wire.numbers import Command, Flag
from ternmq.wire.record import pack
from tests.waiting import until

from .peers import (
    HELLO,
    Echo,
    RawClient,
    TurnedClock,
    a_frame,
    connected,
    hello_frame,
    serving,
)


async def _is_served(listener: Listener) -> None:
    connection = await connected(listener)
    assert await connection.call(Command.PUBLISH, b"fine") == b"fine"
    await connection.close()


BAD_FIRST = {
    "HTTP": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "something else"),
    "TLS": (bytes.fromhex("16030100f4010000f00303") + bytes(80), "does not speak TLS"),
    "zeros": (bytes(64), "command 0"),
    "oversized": (HEADER.pack(2**32 - 1, Command.HELLO, 0, 1), "at most"),
    "large hello": (pack_header(Command.HELLO, 0, 1, HELLO_SIZE_MAX + 1), "at most"),
    "not hello": (a_frame(Command.PUBLISH, b"", correlation=1), "must be HELLO, not PUBLISH"),
    "one-way hello": (
        a_frame(Command.HELLO, pack(HELLO), correlation=1, flags=Flag.ONE_WAY),
        "must be HELLO",
    ),
    "not msgpack": (a_frame(Command.HELLO, b"\xc1\xc1", correlation=1), "not a Hello"),
    "other protocol": (
        hello_frame(Hello(protocol=99, app="a", version="9", session=bytes(16))),
        "speaks protocol 99",
    ),
    "short session": (
        hello_frame(Hello(protocol=1, app="a", version="9", session=b"short")),
        "16 bytes",
    ),
    "correlation 0": (hello_frame(correlation=0), "correlation 0"),
    "an answer": (a_frame(Command.HELLO, b"", correlation=1, flags=Flag.ANSWER), "not answers"),
}


@pytest.mark.parametrize(("data", "complaint"), BAD_FIRST.values(), ids=BAD_FIRST)
async def test_a_bad_first_frame_is_refused_with_a_reason(data: bytes, complaint: str) -> None:
    handler = Echo()
    async with serving(handler) as listener, RawClient(listener) as client:
        client.send(data)
        reason = await client.reason()
        await until(lambda: not listener.peers)
        await _is_served(listener)

    assert isinstance(reason, ProtocolError)
    assert complaint in reason.message
    assert len(handler.welcomed) == 1


BAD_LATER = {
    "unknown command": (HEADER.pack(0, 4_711, 0, 5), "command 4711"),
    "unknown flags": (HEADER.pack(0, Command.PUBLISH, 0x80, 5), "flags 0x0080"),
    "oversized": (HEADER.pack(FRAME_SIZE_MAX + 1, Command.PUBLISH, 0, 5), "8388609 bytes"),
    "hello twice": (hello_frame(correlation=5), "HELLO is not expected"),
    "a notice": (a_frame(Command.NOTICE, b"", correlation=5), "NOTICE is not expected"),
    "an answer": (a_frame(Command.PULL, b"", correlation=5, flags=Flag.ANSWER), "not answers"),
    "the same frame twice": (
        2 * a_frame(Command.PUBLISH, b"x", correlation=5),
        "correlation 5 after 5: a frame came twice",
    ),
    "an old frame": (a_frame(Command.PUBLISH, b"x", correlation=1), "correlation 1 after 1"),
}


@pytest.mark.parametrize(("data", "complaint"), BAD_LATER.values(), ids=BAD_LATER)
async def test_a_bad_frame_closes_its_connection_with_a_reason(data: bytes, complaint: str) -> None:
    handler = Echo()
    async with serving(handler) as listener, RawClient(listener) as client:
        good = await connected(listener)
        await client.greet()
        client.send(data)
        reason = await client.reason()
        assert await good.call(Command.PUBLISH, b"not disturbed") == b"not disturbed"
        await until(lambda: len(handler.gone) == 1)
        assert not good.closed
        await good.close()

    assert isinstance(reason, ProtocolError)
    assert complaint in reason.message


async def test_a_protocol_error_of_the_handler_closes_the_connection() -> None:
    handler = Echo()
    handler.error = ProtocolError("not a Pull: missing field")
    async with serving(handler) as listener, RawClient(listener) as client:
        await client.greet()
        client.send(a_frame(Command.PULL, b"junk", correlation=2))
        reason = await client.reason()

    assert reason.message == "not a Pull: missing field"


async def test_requests_before_the_bad_frame_are_still_answered() -> None:
    async with serving(Echo()) as listener, RawClient(listener) as client:
        await client.greet()
        client.send(a_frame(Command.PUBLISH, b"good", correlation=2) + bytes(16))
        frames = await client.until_closed()

    assert [bytes(frame.payload) for frame in frames[:-1]] == [b"good"]
    assert (frames[-1].command, frames[-1].correlation) == (Command.NOTICE, 0)


async def test_the_reason_survives_a_peer_that_keeps_sending() -> None:
    """Closing with unread bytes would make the kernel reset the connection and drop the reason."""
    async with serving(Echo()) as listener, RawClient(listener) as client:
        client.send(bytes(2 * MIB))
        reason = await client.reason()

    assert isinstance(reason, ProtocolError)


async def test_a_peer_that_says_nothing_is_closed_before_hello() -> None:
    async with (
        serving(Echo(), hello_timeout=0.05, sweep=0.01) as listener,
        RawClient(listener) as client,
    ):
        reason = await client.reason()

    assert isinstance(reason, Unavailable)
    assert "no HELLO within 0.05 s" in reason.message


async def test_a_silent_peer_is_closed_and_a_talking_one_is_not() -> None:
    handler, clock = Echo(), TurnedClock()
    async with (
        serving(handler, clock=clock, sweep=0.01) as listener,
        RawClient(listener) as silent,
    ):
        talking = await connected(listener)
        await silent.greet()
        for _ in range(6):
            await clock.turn(listener, 9)
            assert await talking.call(Command.PUBLISH, b"here") == b"here"
        reason = await silent.reason()
        await talking.close()

    assert "silent for 30 s" in reason.message


async def test_peers_are_not_blamed_when_the_server_itself_was_away() -> None:
    """A stopped process, or a machine asleep, finds everybody silent when it wakes up."""
    handler, clock = Echo(), TurnedClock()
    async with serving(handler, clock=clock, sweep=0.01) as listener:
        connection = await connected(listener)
        await clock.turn(listener, 3_600)
        await clock.turn(listener, 9)

        assert await connection.call(Command.PUBLISH, b"here") == b"here"
        await connection.close()


@pytest.mark.parametrize("sent", [3, 16, 20, 100 * KIB])
async def test_a_half_sent_frame_is_closed_in_time(sent: int) -> None:
    async with (
        serving(Echo(), frame_timeout=0.05, sweep=0.01) as listener,
        RawClient(listener) as client,
    ):
        await client.greet()
        client.send(a_frame(Command.PUBLISH, bytes(MIB), correlation=2)[:sent])
        reason = await client.reason()
        await until(lambda: not listener.peers)

        assert listener.held == 0

    assert "begun and not finished in 0.05 s" in reason.message


async def test_dripping_bytes_do_not_keep_a_half_sent_frame_alive() -> None:
    async with (
        serving(Echo(), frame_timeout=0.1, sweep=0.01) as listener,
        RawClient(listener) as client,
    ):
        await client.greet()
        client.send(pack_header(Command.PUBLISH, 0, 2, 10_000))
        reading = asyncio.create_task(client.until_closed())
        while not reading.done():
            client.send(b".")
            await asyncio.sleep(0.005)
        frames = await reading

    assert frames[-1].flags & Flag.ERROR


async def test_a_stream_of_whole_frames_is_not_mistaken_for_a_half_sent_one() -> None:
    """Each read ends in the middle of some frame, but never of the same one."""
    handler, clock = Echo(), TurnedClock()
    async with (
        serving(handler, clock=clock, sweep=0.01) as listener,
        RawClient(listener) as client,
    ):
        await client.greet()
        size = len(a_frame(Command.PUBLISH, bytes(50), correlation=2))
        data = b"".join(
            a_frame(Command.PUBLISH, bytes(50), correlation=number) for number in range(2, 12)
        )
        client.send(data[: size // 2])
        data = data[size // 2 :]
        for correlation in range(2, 11):
            client.send(data[:size])
            data = data[size:]
            assert (await client.frame()).correlation == correlation
            await clock.turn(listener, 9)

    assert len(handler.frames) == 9


async def test_a_peer_that_never_reads_is_bounded_and_then_closed() -> None:
    """Bounded buffers, others unaffected (row 19)."""
    handler = Echo()
    async with serving(handler, frame_timeout=0.3, sweep=0.02, linger=0.1) as listener:
        with socket.create_connection(listener.address) as never_reads:
            never_reads.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(never_reads, hello_frame())
            await until(lambda: handler.welcomed)
            [peer] = handler.welcomed
            unsent_most, correlation = 0, 2
            with pytest.raises(OSError):  # Closed in the end, while we are still sending.
                while True:
                    frame = a_frame(Command.PUBLISH, bytes(MIB), correlation=correlation)
                    sending = asyncio.ensure_future(loop.sock_sendall(never_reads, frame))
                    while not sending.done():
                        unsent_most = max(unsent_most, peer._transport.get_write_buffer_size())
                        await asyncio.wait([sending], timeout=0.05)
                    await sending
                    correlation += 1
        await until(lambda: handler.gone)
        await _is_served(listener)

    assert unsent_most < 16 * MIB


async def test_answers_beyond_the_hard_bound_cut_the_peer() -> None:
    handler = Echo()
    async with (
        serving(handler, write_high=MIB, write_max=8 * MIB, linger=0.1, sweep=0.02) as listener,
        RawClient(listener) as client,
    ):
        await client.greet()
        [peer] = handler.welcomed
        sent = 0
        while not peer.closed:
            peer.answer(Command.READ, 1, bytes(MIB))
            sent += 1
            await asyncio.sleep(0)

        assert 8 <= sent < 64
        await until(lambda: handler.gone)


async def test_a_slow_reader_that_makes_progress_is_kept() -> None:
    handler, clock = Echo(), TurnedClock()
    async with (
        serving(handler, clock=clock, idle_timeout=1_000, sweep=0.01) as listener,
        RawClient(listener) as client,
    ):
        await client.greet()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        [peer] = handler.welcomed
        for _ in range(16):
            peer.answer(Command.READ, 1, bytes(MIB))
        await until(lambda: not peer.writable)
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(16):
            await client.frame()
            await clock.turn(listener, 9)
        client.send(a_frame(Command.PUBLISH, b"alive", correlation=2))

        assert (await client.frame()).payload == b"alive"


async def test_one_connection_too_many_is_refused_with_a_reason() -> None:
    async with serving(Echo(), connections_max=2) as listener:
        inside = [await connected(listener) for _ in range(2)]
        for _ in range(3):
            with pytest.raises(OverLimit, match="has its 2 connections"):
                await connected(listener)
        assert listener.refused == 3
        assert await inside[0].call(Command.PUBLISH, b"fine") == b"fine"
        await inside[0].close()
        await until(lambda: len(listener.peers) == 1)
        replacement = await connected(listener)
        for connection in (inside[1], replacement):
            await connection.close()


async def test_half_sent_large_frames_of_many_peers_stay_within_the_server_wide_bound() -> None:
    """Half-sent frames that do not go on are closed; whoever sends whole ones gets through."""
    handler = Echo()
    async with serving(
        handler,
        inbound_max=8 * MIB,
        server_inbound_max=16 * MIB,
        crowded_timeout=0.3,
        sweep=0.02,
    ) as listener:
        attackers = [RawClient(listener) for _ in range(5)]
        for attacker in attackers:
            await attacker.__aenter__()
            await attacker.greet()
            attacker.send(a_frame(Command.PUBLISH, bytes(8 * MIB), correlation=2)[: 7 * MIB])
        connection = await connected(listener)
        for _ in range(3):
            assert len(await connection.call(Command.PUBLISH, bytes(4 * MIB))) == 4 * MIB
            assert listener.held < 32 * MIB
        await connection.close()
        reason = await attackers[0].reason()
        for attacker in attackers:
            await attacker.__aexit__(None, None, None)
        await until(lambda: not listener.peers)

        assert listener.held == 0

    assert "memory is short" in reason.message


async def test_closed_peers_are_logged_once_each_and_not_without_end() -> None:
    with capture_logs() as logs:
        async with serving(Echo(), closes_logged_max=3, sweep=30) as listener:
            for _ in range(10):
                async with RawClient(listener) as client:
                    client.send(bytes(16))
                    await client.reason()

    closed = [entry for entry in logs if entry["event"] == "peer closed"]
    assert len(closed) == 3
    assert {entry["code"] for entry in closed} == {"protocol_error"}
    assert all(entry["peer"].startswith("127.0.0.1:") for entry in closed)


async def test_the_number_of_unlogged_closes_is_logged() -> None:
    with capture_logs() as logs:
        async with serving(Echo(), closes_logged_max=1, sweep=0.05) as listener:
            for _ in range(50):
                async with RawClient(listener) as client:
                    client.send(bytes(16))
                    await client.reason()
            await until(lambda: any(entry["event"] == "more peers closed" for entry in logs))


@pytest.mark.parametrize("seed", range(15))
async def test_fuzzed_bytes_hurt_nobody_else(seed: int) -> None:
    chance = random.Random(seed)
    handler = Echo()
    async with serving(handler) as listener, RawClient(listener) as client:
        good = await connected(listener)
        if chance.random() < 0.7:
            await client.greet()
        for _ in range(30):
            data = bytearray(a_frame(Command.PUBLISH, chance.randbytes(50), correlation=2))
            data[chance.randrange(len(data))] = chance.randrange(256)
            client.send(bytes(data[: chance.randrange(1, len(data))]))
        client.writer.write_eof()
        await client.until_closed()
        assert await good.call(Command.PUBLISH, b"fine") == b"fine"
        await good.close()
        await until(lambda: not listener.peers)

        assert listener.held == 0


async def test_peers_that_leave_at_any_byte_leave_nothing_behind() -> None:
    handler = Echo()
    data = hello_frame() + a_frame(Command.PUBLISH, bytes(40), correlation=2)
    async with serving(handler) as listener:
        for size in range(0, len(data) + 1, 3):
            async with RawClient(listener) as client:
                client.send(data[:size])
        await until(lambda: not listener.peers)

        assert listener.held == 0
        assert len(handler.gone) == len(handler.welcomed)
        await _is_served(listener)
