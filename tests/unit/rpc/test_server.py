"""A listener and good clients: answers, errors, order, bounds, start and stop."""

import asyncio
import socket

import pytest

from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadConfig, BadName, TernError, TopicNotFound
from ternmq.core.units import KIB, MIB
from ternmq.rpc.server import Listener, ServerLimits, listening
from ternmq.wire.frame import FRAME_SIZE_MAX
from ternmq.wire.messages.hello import Notice
from ternmq.wire.numbers import Command, Flag
from ternmq.wire.record import pack
from tests.waiting import until

from .peers import Echo, RawClient, a_frame, connected, serving


async def test_a_request_is_answered_with_its_correlation() -> None:
    async with serving(Echo()) as listener, RawClient(listener) as client:
        await client.greet()
        client.send(a_frame(Command.PUBLISH, b"body", correlation=77))
        answer = await client.frame()

    assert (answer.command, answer.flags, answer.correlation) == (Command.PUBLISH, Flag.ANSWER, 77)
    assert answer.payload == b"body"


async def test_pipelined_requests_are_answered_each_once() -> None:
    async with serving(Echo()) as listener, RawClient(listener) as client:
        await client.greet()
        client.send(
            b"".join(
                a_frame(Command.PUBLISH, b"%d" % number, correlation=number)
                for number in range(2, 2_002)
            )
        )
        answers = [await client.frame() for _ in range(2_000)]

    assert [int(answer.payload) for answer in answers] == list(range(2, 2_002))


async def test_small_and_large_answers_keep_their_order() -> None:
    sizes = [1, 100 * KIB, 5, FRAME_SIZE_MAX, 0, 20 * KIB, 3]
    async with serving(Echo()) as listener:
        connection = await connected(listener)
        calls = [connection.call(Command.PUBLISH, bytes(size)) for size in sizes]
        answers = await asyncio.gather(*calls)
        await connection.close()

    assert [len(answer) for answer in answers] == sizes


async def test_an_error_of_the_handler_is_the_answer_and_the_connection_goes_on() -> None:
    handler = Echo()
    handler.error = TopicNotFound("topic 'x' does not exist", topic="x")
    async with serving(handler) as listener:
        connection = await connected(listener)
        with pytest.raises(TopicNotFound, match="'x' does not exist") as caught:
            await connection.call(Command.PUBLISH, b"")
        handler.error = None
        again = await connection.call(Command.PUBLISH, b"again")
        await connection.close()

    assert caught.value.details == {"topic": "x"}
    assert again == b"again"


async def test_a_bug_in_the_handler_is_answered_too() -> None:
    handler = Echo()
    handler.error = ZeroDivisionError("bug")
    async with serving(handler) as listener:
        connection = await connected(listener)
        with pytest.raises(TernError, match="failed to handle") as caught:
            await connection.call(Command.PUBLISH, b"")
        await connection.close()

    assert caught.value.code == "internal"


async def test_details_that_cannot_travel_do_not_lose_the_error() -> None:
    handler = Echo()
    handler.error = TopicNotFound("gone", where=object())
    async with serving(handler) as listener:
        connection = await connected(listener)
        with pytest.raises(TopicNotFound, match="gone"):
            await connection.call(Command.PUBLISH, b"")
        await connection.close()


@pytest.mark.parametrize("error", [TopicNotFound("nobody hears this"), ZeroDivisionError()])
async def test_one_way_requests_get_no_answer_not_even_an_error(error: Exception) -> None:
    handler = Echo()
    handler.error = error
    async with serving(handler) as listener, RawClient(listener) as client:
        await client.greet()
        client.send(a_frame(Command.PUBLISH, b"", correlation=2, flags=Flag.ONE_WAY))
        client.send(a_frame(Command.PING, correlation=3, flags=Flag.ONE_WAY))
        client.send(a_frame(Command.PING, correlation=4))
        answer = await client.frame()

    assert answer.correlation == 4
    assert len(handler.frames) == 1


async def test_ping_is_answered_without_the_handler() -> None:
    handler = Echo()
    async with serving(handler) as listener, RawClient(listener) as client:
        await client.greet()
        client.send(a_frame(Command.PING, correlation=2))
        answer = await client.frame()

    assert (answer.command, answer.correlation) == (Command.PING, 2)
    assert handler.frames == []


async def test_the_handler_learns_who_came_and_who_left() -> None:
    handler = Echo()
    async with serving(handler) as listener:
        async with RawClient(listener) as client:
            await client.greet()
            [peer] = handler.welcomed
            assert peer.hello is not None and peer.hello.app == "shop"
            assert peer.address == client.writer.get_extra_info("sockname")[:2]
            assert peer.server_address == listener.address
            assert listener.peers == {peer}
        await until(lambda: handler.gone)

        assert handler.gone == [peer]
        assert listener.peers == set()
        peer.answer(Command.PUBLISH, 5, b"nobody is there")


async def test_a_refused_application_is_told_why_and_closed() -> None:
    handler = Echo()
    handler.refuse = BadName("'a b' cannot be the name of an application")
    async with serving(handler) as listener:
        with pytest.raises(BadName, match="'a b'"):
            await connected(listener)
        await until(lambda: not listener.peers)

    assert handler.gone == []


async def test_a_notice_reaches_the_client() -> None:
    handler = Echo()
    async with serving(handler) as listener, RawClient(listener) as client:
        await client.greet()
        handler.welcomed[0].push(Command.NOTICE, pack(Notice(kind="stopping")))
        notice = await client.frame()

    assert (notice.command, notice.flags, notice.correlation) == (Command.NOTICE, 0, 0)


async def test_stopping_sends_what_was_written_and_then_closes() -> None:
    handler = Echo()
    async with serving(handler) as listener:
        connection = await connected(listener)
        answers = [connection.call(Command.PUBLISH, bytes(MIB)) for _ in range(8)]
        await until(lambda: len(handler.frames) == 8)
        listener.stop_accepting()

    assert [len(await answer) for answer in answers] == [MIB] * 8
    await until(lambda: connection.closed)
    await connection.close()


async def test_after_stop_accepting_those_inside_go_on_and_nobody_comes_in() -> None:
    async with serving(Echo()) as listener:
        connection = await connected(listener)
        listener.stop_accepting()

        assert await connection.call(Command.PUBLISH, b"still here") == b"still here"
        with pytest.raises(OSError):
            await asyncio.open_connection(*listener.address)
        await connection.close()


async def test_a_taken_port_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadConfig, match=f"127.0.0.1:{port} is taken"):
            async with listening(
                "127.0.0.1", port, Echo(), limits=ServerLimits(), clock=SystemClock()
            ):
                pytest.fail("listening on a taken port")


async def test_an_address_that_is_not_ours_is_a_clear_error() -> None:
    with pytest.raises(BadConfig, match=r"cannot listen on 203\.0\.113\.1:0"):
        async with listening("203.0.113.1", 0, Echo(), limits=ServerLimits(), clock=SystemClock()):
            pytest.fail("listening on a foreign address")


async def test_held_bytes_pause_reading_until_they_are_released() -> None:
    """Bounded buffers: what is accepted and not answered stays under inbound_max."""
    handler = Echo()
    size_max = 2 * FRAME_SIZE_MAX
    async with serving(handler, inbound_max=size_max) as listener, RawClient(listener) as client:
        await client.greet()
        [peer] = handler.welcomed
        peer.hold(size_max + 1)
        client.send(a_frame(Command.PUBLISH, b"", correlation=2))
        await _other_client_is_served(listener)
        assert handler.frames[-1].payload == b"other"
        assert listener.held == size_max + 1

        peer.release(size_max + 1)
        answer = await client.frame()

    assert answer.correlation == 2
    assert listener.held == 0


async def test_the_server_wide_bound_pauses_those_who_send_more() -> None:
    handler = Echo()
    async with (
        serving(handler, inbound_max=8 * MIB, server_inbound_max=16 * MIB) as listener,
        RawClient(listener) as first,
        RawClient(listener) as second,
        RawClient(listener) as third,
    ):
        for client in (first, second, third):
            await client.greet()
        peers = handler.welcomed
        for peer in peers[:2]:
            peer.hold(8 * MIB)
        peers[2].hold(1)
        third.send(a_frame(Command.PUBLISH, b"", correlation=2))
        first.send(a_frame(Command.PUBLISH, b"first", correlation=2))
        assert (await first.frame()).payload == b"first"
        assert len(handler.frames) == 1

        peers[0].release(8 * MIB)
        answer = await third.frame()
        peers[1].release(8 * MIB)
        peers[2].release(1)

    assert answer.correlation == 2
    assert listener.held == 0


async def test_releasing_after_the_peer_left_keeps_the_total_right() -> None:
    handler = Echo()
    async with serving(handler) as listener:
        async with RawClient(listener) as client:
            await client.greet()
            handler.welcomed[0].hold(MIB)
        await until(lambda: handler.gone)

        assert listener.held == MIB
        handler.gone[0].release(MIB)
        assert listener.held == 0


async def _other_client_is_served(listener: Listener) -> None:
    async with RawClient(listener) as other:
        await other.greet()
        other.send(a_frame(Command.PUBLISH, b"other", correlation=2))
        assert (await other.frame()).payload == b"other"
