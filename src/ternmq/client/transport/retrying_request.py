"""Repeats one request to one broker group until it is answered.

For commands that the broker recognises when they come again (by ids, by a transaction's name). A
lost connection or silence means: the same bytes again. A refusal for now (full disk, a limit, an
index that is being made) is tried again a little later. A refusal for good is raised at once, and
so is one that sends the caller elsewhere. With `heals`, where only this group can do it, a group
that lacks its replicas is waited for like one that is away.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from ternmq.client.config import ClientConfig
from ternmq.client.model.request_check import sendable
from ternmq.client.transport.answer_deadlines import SWEPT_MIN_S
from ternmq.client.transport.link import Link, back_off
from ternmq.core.errors import (
    Closed,
    Moved,
    NotMaster,
    ReadOnly,
    SendUnknown,
    TernError,
    Unavailable,
)
from ternmq.wire.record import Record, T, pack, unpack

R = TypeVar("R")

REFUSALS_MAX = 3  # Answers "not now" in a row; being unreachable does not count.


class RetryingRequest:
    """How long one call goes on, and what it has seen."""

    def __init__(self, config: ClientConfig, what: str, *, heals: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + config.delivery_timeout
        self._request_timeout = config.request_timeout
        self._what = what
        self._healing = (NotMaster, ReadOnly) if heals else (NotMaster,)
        self._failures = 0
        self._refusals = 0
        self._transmitted = False

    async def ask(self, link: Link, command: int, payload: bytes | bytearray, answer: type[T]) -> T:
        """Repeat until there is an answer; `SendUnknown` when there was none in time."""
        return unpack(await self.ask_bytes(link, command, payload), answer)

    async def ask_bytes(
        self, link: Link, command: int, payload: bytes | bytearray
    ) -> bytes | bytearray | memoryview:
        """Ask for an answer that is no record."""
        while True:
            try:
                connection = link.connection
                if connection is None or connection.closed:
                    connection = await self._within(link.get())
                self._transmitted = True
                until = min(self._loop.time() + self._request_timeout, self._deadline)
                answer = connection.call(command, payload)
                if until - self._loop.time() < SWEPT_MIN_S:
                    return await self._within(answer)
                link.deadlines.watch(answer, until)
                return await answer
            except (Unavailable, TimeoutError) as error:
                await self._again(error)
            except Closed:
                if link.closed:
                    raise
                await self._again(Unavailable("the connection was closed"))
            except TernError as error:
                self._refusals += not isinstance(error, self._healing)
                if not error.retryable or self._refusals >= REFUSALS_MAX:
                    raise
                if isinstance(error, Moved):
                    raise
                await self._again(error)

    async def ask_record(self, link: Link, command: int, record: Record, answer: type[T]) -> T:
        return await self.ask(link, command, pack(sendable(record)), answer)

    async def _within(self, working: Awaitable[R]) -> R:
        left = self._deadline - self._loop.time()
        async with asyncio.timeout(max(0.0, min(self._request_timeout, left))):
            return await working

    async def _again(self, error: Exception) -> None:
        self._failures += 1
        wait = back_off(self._failures - 1)
        if self._loop.time() + wait >= self._deadline:
            reason = str(error) or "no answer"
            if isinstance(error, ReadOnly):
                raise error
            if self._transmitted:
                raise SendUnknown(f"{self._what}: no answer in time ({reason}); it may be done")
            raise Unavailable(f"{self._what}: no broker could be asked in time ({reason})")
        await asyncio.sleep(wait)
