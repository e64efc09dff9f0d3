"""A client's second try is answered with the first."""

import asyncio

import pytest

from ternmq.core.errors import Unavailable
from ternmq.gateway.sessions.recent_sends import KEPT_S, RecentSends
from ternmq.testing.clock import TurnedClock


async def test_the_second_try_gets_the_answer_of_the_first() -> None:
    recent, sent = RecentSends(TurnedClock()), []

    async def send() -> int:
        sent.append(1)
        await asyncio.sleep(0)
        return len(sent)

    first = asyncio.create_task(recent.once("t", b"id", send))
    assert await recent.once("t", b"id", send) == 1
    assert await first == 1
    assert await recent.once("other", b"id", send) == 2


async def test_what_failed_may_be_tried_again() -> None:
    recent, tries = RecentSends(TurnedClock()), []

    async def send() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise Unavailable("not now")
        return "stored"

    with pytest.raises(Unavailable):
        await recent.once("t", b"id", send)
    assert await recent.once("t", b"id", send) == "stored"


async def test_a_caller_that_goes_does_not_stop_it() -> None:
    recent, go = RecentSends(TurnedClock()), asyncio.Event()

    async def send() -> str:
        await go.wait()
        return "stored"

    waiting = asyncio.create_task(recent.once("t", b"id", send))
    await asyncio.sleep(0)
    waiting.cancel()
    go.set()

    async def other() -> str:
        raise AssertionError("it is under way")

    assert await recent.once("t", b"id", other) == "stored"


async def test_old_ones_are_forgotten() -> None:
    clock = TurnedClock()
    recent, sent = RecentSends(clock), []

    async def send() -> None:
        sent.append(1)

    await recent.once("t", b"id", send)
    clock.turn(KEPT_S + 1)
    await recent.once("t", b"id", send)

    assert len(sent) == 2
