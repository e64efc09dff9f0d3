"""The bound of the send buffer."""

import asyncio

import pytest

from ternmq.client.producing.send_buffer import SendBuffer
from ternmq.core.errors import BufferFull


async def test_room_is_given_in_the_order_it_was_asked_for() -> None:
    buffer = SendBuffer(messages_max=10, size_max=1000)
    assert buffer.take(9, 100)
    order: list[str] = []

    async def ask(name: str, count: int) -> None:
        await buffer.wait(count, 10, timeout=10)
        order.append(name)

    tasks = [asyncio.create_task(ask("large", 5)), asyncio.create_task(ask("small", 1))]
    await asyncio.sleep(0)
    assert not buffer.take(1, 1)  # It would fit, but others were first.
    buffer.give(5, 50)
    await asyncio.gather(*tasks)

    assert order == ["large", "small"]


def test_a_message_larger_than_everything_goes_alone() -> None:
    buffer = SendBuffer(messages_max=10, size_max=100)

    assert buffer.take(1, 5000)
    assert not buffer.take(1, 1)
    buffer.give(1, 5000)
    assert buffer.take(1, 1)


async def test_who_waits_too_long_is_told() -> None:
    buffer = SendBuffer(messages_max=1, size_max=100)
    buffer.take(1, 1)
    with pytest.raises(BufferFull, match="none was freed in"):
        await buffer.wait(1, 1, timeout=0.01)
    buffer.give(1, 1)

    assert (buffer.messages, buffer.size) == (0, 0)
    assert buffer.take(1, 1)


async def test_who_gives_up_leaves_no_hole() -> None:
    buffer = SendBuffer(messages_max=1, size_max=100)
    buffer.take(1, 1)
    first = asyncio.create_task(buffer.wait(1, 1, timeout=10))
    second = asyncio.create_task(buffer.wait(1, 1, timeout=10))
    await asyncio.sleep(0)
    buffer.give(1, 1)  # Handed to the first, which is cancelled in the same moment.
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second

    assert (buffer.messages, buffer.size) == (1, 1)
