"""Trying again: it waits longer each time, and ends where that cannot help."""

import asyncio

import pytest

from ternmq.client.transport.attempts import Attempts
from ternmq.client.transport.link import BACK_OFF_MIN_S
from ternmq.core.errors import BadRequest, Unavailable


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
