"""Whoever asked hears in time that there can be no answer at present."""

import asyncio

from ternmq.core.errors import TernError, Unavailable
from ternmq.rpc.stuck_requests import WITHIN_S, StuckRequests


def watched(waits: StuckRequests) -> tuple["asyncio.Future[None]", list[TernError]]:
    told: list[TernError] = []
    waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waits.watch(waiting, told.append)
    return waiting, told


async def test_what_is_stuck_is_told_once_and_in_time() -> None:
    waits = StuckRequests(lambda: "no replica is in step: start one")
    _, told = watched(waits)
    now = asyncio.get_running_loop().time()

    waits.look(now + WITHIN_S / 2)
    assert told == []
    waits.look(now + WITHIN_S + 1)
    waits.look(now + WITHIN_S + 2)
    [error] = told
    assert isinstance(error, Unavailable)
    assert "start one" in error.message


async def test_what_is_merely_slow_is_left_alone() -> None:
    waits = StuckRequests(lambda: None)
    _, told = watched(waits)

    waits.look(asyncio.get_running_loop().time() + 100)
    assert told == []


async def test_what_is_done_is_forgotten() -> None:
    waits = StuckRequests(lambda: "something")
    waiting, told = watched(waits)
    waiting.set_result(None)
    await asyncio.sleep(0)

    waits.look(asyncio.get_running_loop().time() + 100)
    assert told == []
    assert not waits._watched
