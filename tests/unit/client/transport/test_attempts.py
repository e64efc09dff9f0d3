"""Trying again: it waits longer each time, and ends where that cannot help."""

import asyncio

import pytest

from ternmq.client.transport.attempts import Attempts
from ternmq.client.transport.link import BACK_OFF_MAX_S, BACK_OFF_MIN_S, Link
from ternmq.core.errors import BadRequest, Unavailable
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello

HELLO = Hello(protocol=PROTOCOL_VERSION, app="shop", version="0", session=bytes(16))


async def test_a_failure_that_may_pass_is_waited_for() -> None:
    attempts, loop = Attempts(within=10), asyncio.get_running_loop()
    before = loop.time()

    await attempts.failed(Unavailable("away"))

    assert attempts.failures == 1
    assert loop.time() - before >= BACK_OFF_MIN_S


async def test_a_failure_for_good_is_raised_at_once() -> None:
    attempts = Attempts()

    with pytest.raises(BadRequest, match="never"):
        await attempts.failed(BadRequest("never"))

    assert attempts.failures == 0


async def test_when_time_is_up_the_last_failure_is_raised() -> None:
    attempts = Attempts(within=0.01)
    await attempts.failed(Unavailable("first"))

    with pytest.raises(Unavailable, match="second"):
        await attempts.failed(Unavailable("second"))


async def test_success_forgets_the_failures_before() -> None:
    attempts = Attempts()
    await attempts.wait()

    attempts.worked()

    assert attempts.failures == 0


async def test_news_of_the_server_end_the_waiting() -> None:
    """A failover is as long as it takes to find the new master, not as the pause after failures."""

    async def find() -> str:
        return "127.0.0.1:1"

    link = Link(find, HELLO, timeout=1)
    attempts = Attempts(link=link)
    attempts.failures = 20
    waiting = asyncio.create_task(attempts.wait())
    again = asyncio.create_task(attempts.wait())
    await asyncio.sleep(0)
    began = asyncio.get_running_loop().time()
    link.move("127.0.0.1:2")
    await asyncio.gather(waiting, again)

    assert asyncio.get_running_loop().time() - began < BACK_OFF_MAX_S / 2
    attempts.failures = 0
    before = asyncio.get_running_loop().time()
    await attempts.wait()
    assert asyncio.get_running_loop().time() - before >= BACK_OFF_MIN_S / 2, "news are used once"
