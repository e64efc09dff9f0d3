"""Answers brokers' questions about open transactions with the application's function.

While a checker is set the client stays connected to every broker group and says that it can be
asked. Questions come from transactions of any instance of the same application, so the function
must find out from shared state (a database), not from this process. It answers COMMIT, ROLLBACK or
UNKNOWN; raising means UNKNOWN, and the broker asks again later. Functions that are not coroutines
run in threads.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from ternmq.client.config import ClientConfig
from ternmq.client.model.times import time_from_ms
from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.retrying_request import RetryingRequest
from ternmq.core.errors import ProtocolError, TernError
from ternmq.core.lifecycle import Background
from ternmq.core.log import get_logger
from ternmq.rpc.connection import Connection, request
from ternmq.wire.messages.hello import Empty
from ternmq.wire.messages.transactions import HalfCheck, HalfEnd, HalfEnded
from ternmq.wire.numbers import Command
from ternmq.wire.record import unpack

log = get_logger()

LOOK_S = 0.5  # How soon a lost connection is noticed and opened again.
ANSWERS_MAX = 64  # Questions answered at one time; others are asked again by the broker.


class Verdict(StrEnum):
    """What became of a transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionCheck:
    """The question, as the application's function gets it."""

    id: str
    topics: list[str]
    rows: int
    attempt: int
    """The how manieth time it is asked."""
    opened_at: datetime
    message_id: str
    """Of the first message, like key and properties."""
    key: str | None
    properties: dict[str, Any]


CheckFunction = Callable[[TransactionCheck], Verdict | str | Awaitable[Verdict | str]]


class Checker:
    """Keeps the client ready to be asked, and answers."""

    def __init__(self, cluster: Cluster, config: ClientConfig, function: CheckFunction) -> None:
        self._cluster = cluster
        self._config = config
        self._function = function
        self._registered_on: dict[str, Connection] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._ready = asyncio.Event()
        self._error: TernError | None = None
        self._background = Background("the transaction checker", self._broken)
        self._keeping = self._background.task(self._keep(), name="tern-checker")

    def _broken(self, error: TernError) -> None:
        self._error = error
        self._ready.set()

    def answer_with(self, function: CheckFunction) -> None:
        """Ask another function from now on."""
        self._function = function

    async def ready(self) -> None:
        """Wait until this client is registered at every broker group that can be reached."""
        await self._ready.wait()
        if self._error is not None:
            raise self._error.copy()

    async def close(self) -> None:
        self._keeping.cancel()
        for task in self._answering:
            task.cancel()
        await asyncio.wait([self._keeping, *self._answering])

    async def _keep(self) -> None:
        while True:
            try:
                for group in await self._cluster.some_masters():
                    await self._tell(group)
                self._ready.set()
            except TernError as error:
                log.debug("no broker to answer to", reason=error.message)
            except Exception as bug:
                self._background.report(bug)  # And try again: nobody else answers for this app.
            await asyncio.sleep(LOOK_S)

    async def _tell(self, group: str) -> None:
        link = self._cluster.broker(group)
        connection = await link.get()
        if self._registered_on.get(group) is connection:
            return
        link.pushes[int(Command.CHECK)] = lambda payload: self._asked(group, payload)
        timeout = self._config.request_timeout
        await request(connection, Command.CHECKER, Empty(), Empty, timeout=timeout)
        self._registered_on[group] = connection

    def _asked(self, group: str, payload: bytearray) -> None:
        try:
            check = unpack(payload, HalfCheck)
        except ProtocolError as error:
            log.warning("a question about a transaction cannot be read", reason=error.message)
            return
        if len(self._answering) < ANSWERS_MAX:
            task = self._background.task(self._answer(group, check), name="tern-check")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, group: str, check: HalfCheck) -> None:
        verdict = await self._decide(check)
        if verdict is Verdict.UNKNOWN:
            return
        end = HalfEnd(
            transaction=check.transaction,
            action="commit" if verdict is Verdict.COMMIT else "rollback",
            source="check",
        )
        link = self._cluster.broker(group)
        try:
            retrying = RetryingRequest(self._config, "an answer about a transaction")
            await retrying.ask_record(link, Command.HALF_END, end, HalfEnded)
        except TernError as error:
            log.warning(
                "an answer about a transaction came too late or was lost",
                transaction=check.transaction.hex(),
                answer=verdict.value,
                reason=error.message,
            )

    async def _decide(self, check: HalfCheck) -> Verdict:
        question = TransactionCheck(
            id=check.transaction.hex(),
            topics=check.topics,
            rows=check.rows,
            attempt=check.attempt,
            opened_at=time_from_ms(check.opened_at_ms),
            message_id=check.message_id,
            key=check.key,
            properties=check.properties,
        )
        try:
            if inspect.iscoroutinefunction(self._function):
                answer = await self._function(question)
            else:
                answer = await asyncio.to_thread(self._function, question)
                if inspect.isawaitable(answer):
                    answer = await answer
            if answer not in list(Verdict):
                log.error(
                    "a transaction checker answers Verdict.COMMIT, ROLLBACK or UNKNOWN; this "
                    "counts as UNKNOWN",
                    transaction=question.id,
                    answer=repr(answer)[:100],
                )
                return Verdict.UNKNOWN
            return Verdict(answer)
        except Exception as error:  # Whatever the application's function raises.
            log.warning(
                "the transaction checker failed; it will be asked again",
                transaction=question.id,
                error=repr(error),
            )
            return Verdict.UNKNOWN
