"""Waiting for a condition, never for luck: `await until(…)` in a loop, `wait_until(…)` in a thread.

Both ask again and again until the answer is true and give that answer back. After the deadline they
fail and say what was waited for: in the caller's words, or else with the source of the condition.
They ask often at first and then less often; `every` asks at that interval, for conditions that hold
for a moment only. Errors that are named as `ignoring` mean "not yet".
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar, overload

Answer = TypeVar("Answer")
Errors = type[Exception] | tuple[type[Exception], ...]

SECONDS = 20.0
PAUSE_MIN_S = 0.001
PAUSE_MAX_S = 0.025


@overload
async def until(
    condition: Callable[[], Awaitable[Answer]],
    what: str = "",
    *,
    seconds: float = SECONDS,
    every: float | None = None,
    ignoring: Errors = (),
) -> Answer: ...
@overload
async def until(
    condition: Callable[[], Answer],
    what: str = "",
    *,
    seconds: float = SECONDS,
    every: float | None = None,
    ignoring: Errors = (),
) -> Answer: ...
async def until(
    condition: Callable[[], Any],
    what: str = "",
    *,
    seconds: float = SECONDS,
    every: float | None = None,
    ignoring: Errors = (),
) -> Any:
    """The first true answer. The condition may be a function or a coroutine function."""
    pauses = _pauses(every)
    try:
        async with asyncio.timeout(seconds):
            while True:
                with suppress(*_named(ignoring)):
                    answer = condition()
                    if isinstance(answer, Awaitable):
                        answer = await answer
                    if answer:
                        return answer
                await asyncio.sleep(next(pauses))
    except TimeoutError as error:
        raise AssertionError(_in_vain(condition, what, seconds)) from error


def wait_until(
    condition: Callable[[], Answer],
    what: str = "",
    *,
    seconds: float = SECONDS,
    every: float | None = None,
    ignoring: Errors = (),
) -> Answer:
    """The first true answer, for tests that have no loop and for threads."""
    pauses = _pauses(every)
    deadline = time.monotonic() + seconds
    while True:
        with suppress(*_named(ignoring)):
            if answer := condition():
                return answer
        if time.monotonic() > deadline:
            raise AssertionError(_in_vain(condition, what, seconds))
        time.sleep(next(pauses))


def _named(errors: Errors) -> tuple[type[Exception], ...]:
    return errors if isinstance(errors, tuple) else (errors,)


def _pauses(every: float | None) -> Iterator[float]:
    pause = every or PAUSE_MIN_S
    while True:
        yield pause
        if every is None:
            pause = min(pause * 1.5, PAUSE_MAX_S)


def _in_vain(condition: Callable[[], object], what: str, seconds: float) -> str:
    if not what:
        try:
            what = " ".join(inspect.getsource(condition).split())
        except (OSError, TypeError):  # Not a function, or its file has changed.
            what = repr(condition)
    return f"waited {seconds:g} s in vain: {what}"
