"""What a transport promises, shown of ours and of grpcio's by the same calls of a grpcio client."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from ternmq.rpc.http2.calls import CallStatus
from tests.unit.rpc.http2.called import SIZE_MAX, TestedMethods, serving
from tests.waiting import until

OPTIONS = [("grpc.max_receive_message_length", 2**26), ("grpc.use_local_subchannel_pool", 1)]


@pytest.fixture(params=["ours", "grpcio"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table() -> TestedMethods:
    return TestedMethods()


@pytest.fixture
async def channel(transport: str, table: TestedMethods) -> AsyncIterator[Any]:
    async with (
        serving(transport, table) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as found,
    ):
        yield found


async def refused(call: Any) -> tuple[Any, str]:
    with pytest.raises(grpc.RpcError) as error:
        await call
    return error.value.code(), error.value.details()


@pytest.mark.parametrize("size", [0, 1, 200, 16_379, 16_380, 70_000, SIZE_MAX - 5])
async def test_a_message_comes_back_as_it_was(channel: Any, size: int) -> None:
    body = bytes(at % 251 for at in range(min(size, 1_000))) + bytes(max(0, size - 1_000))

    assert await channel.unary_unary("/t/echo")(body, timeout=30) == body


async def test_a_message_that_is_too_large_is_refused(channel: Any) -> None:
    code, _ = await refused(channel.unary_unary("/t/echo")(bytes(SIZE_MAX + 1), timeout=30))

    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_headers_come_in_lower_case_binary_ones_as_bytes(
    channel: Any, table: TestedMethods
) -> None:
    metadata = (("x-own", "one"), ("x-own", "two"), ("some-bin", b"\x00\xff\x01"))
    await channel.unary_unary("/t/echo")(b"", metadata=metadata, timeout=10)

    [call] = table.calls
    assert call.metadata["x-own"] == "two"
    assert call.metadata["some-bin"] == "\x00\xff\x01"
    assert not [name for name in call.metadata if name.startswith((":", "grpc-"))]
    assert call.deadline is not None
    assert 5 < call.deadline - asyncio.get_running_loop().time() < 11
    assert call.method == "/t/echo"
    assert "127.0.0.1" in call.peer


@pytest.mark.parametrize("status", [each for each in CallStatus if each])
async def test_a_refusal_has_its_status_and_its_text(channel: Any, status: CallStatus) -> None:
    code, text = await refused(channel.unary_unary("/t/refuse")(b"%d" % status, timeout=10))

    assert code.value[0] == int(status)
    assert text == "nicht da: é 100% \n"


async def test_a_bug_is_internal_and_keeps_its_text(channel: Any) -> None:
    code, text = await refused(channel.unary_unary("/t/fail")(b"", timeout=10))

    assert code is grpc.StatusCode.INTERNAL
    assert "secret" not in text


@pytest.mark.parametrize("path", ["/t/nothing", "/nowhere/echo", "/t/"])
async def test_what_is_not_there_is_unimplemented(channel: Any, path: str) -> None:
    code, _ = await refused(channel.unary_unary(path)(b"", timeout=10))

    assert code is grpc.StatusCode.UNIMPLEMENTED


async def test_a_compressed_request_is_taken_or_refused_as_unimplemented(
    transport: str, table: TestedMethods
) -> None:
    """grpcio unpacks it; ours says that it does not."""
    async with (
        serving(transport, table) as port,
        grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", options=OPTIONS, compression=grpc.Compression.Gzip
        ) as channel,
    ):
        call = channel.unary_unary("/t/echo")(bytes(1_000), timeout=10)
        if transport == "ours":
            assert (await refused(call))[0] is grpc.StatusCode.UNIMPLEMENTED
        else:
            assert await call == bytes(1_000)


async def test_a_handler_is_cancelled_when_its_deadline_has_passed(
    channel: Any, table: TestedMethods
) -> None:
    code, _ = await refused(channel.unary_unary("/t/wait")(b"", timeout=0.3))

    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    await until(lambda: table.cancelled == 1, "the handler is cancelled")


async def test_a_handler_is_cancelled_when_its_caller_gives_up_or_is_gone(
    transport: str, table: TestedMethods
) -> None:
    async with serving(transport, table) as port:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
            call = channel.unary_unary("/t/wait")(b"")
            await until(lambda: table.began == 1, "the handler runs")
            call.cancel()
            await until(lambda: table.cancelled == 1, "the handler is cancelled")
            _lost = channel.unary_unary("/t/wait")(b"")
            await until(lambda: table.began == 2, "the next one runs")
        await until(lambda: table.cancelled == 2, "it is cancelled with its connection")


async def test_a_stream_of_answers_comes_in_order(channel: Any) -> None:
    stream = channel.unary_stream("/t/many")(b"3000 1000", timeout=60)
    found = [int.from_bytes(answer[:4], "big") async for answer in stream]

    assert found == list(range(3_000))
    assert await stream.code() is grpc.StatusCode.OK


async def test_a_stream_that_is_refused_in_the_middle_keeps_what_came(channel: Any) -> None:
    stream = channel.unary_stream("/t/many")(b"-3 10", timeout=10)
    found = []
    with pytest.raises(grpc.RpcError) as error:
        async for answer in stream:
            found.append(answer)  # noqa: PERF401

    assert len(found) == 3
    assert error.value.code() is grpc.StatusCode.ABORTED
    assert error.value.details() == "enough"


async def test_a_caller_that_does_not_read_holds_its_handler(
    channel: Any, table: TestedMethods
) -> None:
    """Far fewer messages are made than it asked for, until it reads or goes."""
    stream = channel.unary_stream("/t/many")(b"100000 10000")
    await stream.read()
    before = -1
    while table.made != before:
        before = table.made
        await asyncio.sleep(0.3)
    assert table.made < 5_000
    stream.cancel()

    await until(lambda: table.cancelled == 1, "the handler is cancelled")


async def test_both_sides_talk_as_long_as_they_like(channel: Any) -> None:
    stream = channel.stream_stream("/t/talk")()
    for size in (0, 1, 100_000, SIZE_MAX - 5, 3):
        await stream.write(bytes(size))
        assert await stream.read() == bytes(size)
    await stream.done_writing()

    assert await stream.read() == b"you said your last"
    assert await stream.read() is grpc.aio.EOF
    assert await stream.code() is grpc.StatusCode.OK


async def test_a_handler_may_end_a_talk(channel: Any) -> None:
    stream = channel.stream_stream("/t/talk")()
    await stream.write(b"stop")

    assert await stream.read() is grpc.aio.EOF
    assert await stream.code() is grpc.StatusCode.OK


async def test_a_talk_is_cancelled_when_its_caller_gives_up(
    channel: Any, table: TestedMethods
) -> None:
    stream = channel.stream_stream("/t/talk")()
    await stream.write(b"x")
    await stream.read()
    stream.cancel()

    await until(lambda: table.cancelled == 1, "the handler is cancelled")


async def test_many_calls_at_once_are_all_answered(channel: Any) -> None:
    echo = channel.unary_unary("/t/echo")
    bodies = [b"%d" % at * 50 for at in range(500)]

    assert await asyncio.gather(*(echo(body, timeout=60) for body in bodies)) == bodies
