"""`Inbox`: a handler whose work and whose "handled" record are one transaction.

    @app.subscriber("order.paid", group="billing", inbox=Inbox(engine))
    async def bill(message, session):
        session.add(Invoice(order=message.key))

The record is inserted first, then the handler runs with the session, then both are committed, then
the message is acked. A crash before the commit leaves neither; a crash after it leaves a message
that comes again, finds its record, and is acked without the handler. Two workers with the same
message at once: the second waits for the first's commit and skips, or works if that rolled back.

Async handlers take an async engine, plain functions (run in threads) a plain one. `session=False`
is the plain mode for work that is not in this database: the handler gets the message alone; a
record with a time limit keeps others away, and only a crash in the middle lets the work be done
again. Who finds such a record asks for the message again when that time is over: trying sooner
would use up the group's attempts. Never touches the network; the app acks.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from ternmq.client.model.arguments import check_value
from ternmq.client.model.durations import Duration, seconds_of, typed
from ternmq.client.model.message import Message
from ternmq.core.clock import Clock, SystemClock
from ternmq.core.database import Ready
from ternmq.core.errors import BadRequest
from ternmq.core.units import DAY_MS
from ternmq.inbox.records import InboxRecords
from ternmq.inbox.table import TABLE, make_inbox_table

FORGET_ROWS_MAX = 1_000
WORKING_S = 300.0
WORKING_MAX_S = 7 * DAY_MS / 1000
OLDER_MAX_S = 36_500 * DAY_MS / 1000

AGAIN_S = 0.1

KeyOf = Callable[[Message], str]
T = TypeVar("T")


class Inbox:
    """Remembers in a database what its groups have handled."""

    def __init__(
        self,
        engine: Engine | AsyncEngine,
        *,
        table: str | Table = TABLE,
        key: KeyOf | None = None,
        session: bool = True,
        session_maker: Callable[[], Any] | None = None,
        working: Duration = WORKING_S,
        clock: Clock | None = None,
    ) -> None:
        """`table`: a name, or `make_inbox_table(name, schema)`. `key`: what makes two messages the
        same, instead of the message id.

        `session_maker` makes the handler's sessions (a `sessionmaker` or `async_sessionmaker` on
        this engine). `working`: in the plain mode, seconds after which a worker counts as dead.
        """
        if not isinstance(engine, Engine | AsyncEngine):
            raise BadRequest(
                "an inbox takes an engine: create_engine(…) or create_async_engine(…) of SQLAlchemy"
            )
        check_value("table", table, str | Table)
        check_value("clock", clock, Clock | None)
        check_value("session", session, bool)
        for name, function in (("key", key), ("session_maker", session_maker)):
            if function is not None and not callable(function):
                raise BadRequest(f"{name} is {typed(function)}; it is a function")
        self.table = table if isinstance(table, Table) else make_inbox_table(table)
        self.engine = engine
        self._key = key
        self._with_session = session
        self._make: Callable[[], Any] = session_maker or self._plain_session
        self._working_ms = int(seconds_of("working", working, 0.001, WORKING_MAX_S) * 1000)
        self._clock: Clock = clock or SystemClock()
        self._records = InboxRecords(self.table)

    def _plain_session(self) -> Any:
        if isinstance(self.engine, AsyncEngine):
            return AsyncSession(self.engine, expire_on_commit=False)
        return Session(self.engine, expire_on_commit=False)

    def create_tables(self) -> Awaitable[None]:
        """Make the table where it is missing; await it with an async engine."""
        return self._run(self.table.metadata.create_all)

    def forget(self, older_than: Duration = 30 * DAY_MS / 1000) -> Awaitable[int]:
        """Remove records older than that (seconds or timedelta), in small steps.

        Longer than any retry takes. Await it with an async engine.
        """
        seconds = seconds_of("older_than", older_than, -OLDER_MAX_S, OLDER_MAX_S)
        before_ms = self._clock.now_ms() - int(seconds * 1000)

        def step(connection: Connection) -> int:
            return self._records.forget(connection, before_ms=before_ms, rows_max=FORGET_ROWS_MAX)

        if isinstance(self.engine, AsyncEngine):
            return self._forget_async(step)
        gone = total = self._begin(step)
        while gone >= FORGET_ROWS_MAX:
            gone = self._begin(step)
            total += gone
        return Ready(total)

    async def _forget_async(self, step: Callable[[Connection], int]) -> int:
        gone = total = await self._begin_async(step)
        while gone >= FORGET_ROWS_MAX:
            gone = await self._begin_async(step)
            total += gone
        return total

    # Handlers.

    def guard(self, handler: Callable[..., Any], group: str) -> Callable[[Message], Any]:
        """The handler as an app calls it: with a message, at most once effective."""
        if not callable(handler):
            raise BadRequest(f"a handler is a function, not {typed(handler)}")
        is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004
        )
        if is_async != isinstance(self.engine, AsyncEngine):
            raise BadRequest(
                "an async handler needs an inbox with an async engine (create_async_engine), "
                "a plain function one with a plain engine (create_engine)"
            )
        self._check_parameters(handler)
        name = getattr(handler, "__name__", type(handler).__name__)  # For the app's log lines.
        if is_async:
            call = self._in_async_session if self._with_session else self._around_async

            async def guarded(message: Message) -> None:
                await call(handler, group, message)

            guarded.__name__ = name
            return guarded
        plain = self._in_session if self._with_session else self._around

        def guarded_plain(message: Message) -> None:
            plain(handler, group, message)

        guarded_plain.__name__ = name
        return guarded_plain

    def _check_parameters(self, handler: Callable[..., Any]) -> None:
        """Here, and not when the first messages have become dead letters."""
        given = ("message", "session") if self._with_session else ("message",)
        try:
            inspect.signature(handler).bind(*given)
        except TypeError as error:
            raise BadRequest(
                f"a handler with this inbox is called with ({', '.join(given)}): {error}"
            ) from error
        except ValueError:  # Not written in Python: nobody can say.
            return

    def _key_of(self, message: Message) -> str:
        if self._key is None:
            return message.id
        key = self._key(message)
        if not isinstance(key, str):
            raise BadRequest(f"the inbox's key function returned {type(key).__name__}, not str")
        return key

    async def _in_async_session(
        self, handler: Callable[..., Any], group: str, message: Message
    ) -> None:
        held = message.held()
        async with self._make() as session, session.begin():
            if await session.run_sync(self._take, group, self._key_of(message)):
                await handler(held, session)
                if held.given_back:
                    await session.rollback()

    def _in_session(self, handler: Callable[..., Any], group: str, message: Message) -> None:
        held = message.held()
        with self._make() as session, session.begin():
            if self._take(session, group, self._key_of(message)):
                handler(held, session)
                if held.given_back:
                    session.rollback()

    def _take(self, session: Session, group: str, key: str) -> bool:
        return self._records.take(session.connection(), group, key, now_ms=self._clock.now_ms())

    # The plain mode.

    def _around(self, handler: Callable[..., Any], group: str, message: Message) -> None:
        key, until_ms = self._key_of(message), self._clock.now_ms() + self._working_ms
        others_s = self._begin(lambda one: self._start(one, group, key, until_ms))
        if others_s is not None:
            _come_again(message, others_s)
            return
        records, held = self._records, message.held()
        try:
            handler(held)
        except BaseException:
            self._begin(lambda one: records.give_up(one, group, key, until_ms=until_ms))
            raise
        end = records.give_up if held.given_back else records.finish
        self._begin(lambda one: end(one, group, key, until_ms=until_ms))

    async def _around_async(
        self, handler: Callable[..., Any], group: str, message: Message
    ) -> None:
        key, until_ms = self._key_of(message), self._clock.now_ms() + self._working_ms
        others_s = await self._begin_async(lambda one: self._start(one, group, key, until_ms))
        if others_s is not None:
            _come_again(message, others_s)
            return
        records, held = self._records, message.held()
        try:
            await handler(held)
        except BaseException:
            await asyncio.shield(
                self._begin_async(lambda one: records.give_up(one, group, key, until_ms=until_ms))
            )
            raise
        end = records.give_up if held.given_back else records.finish
        await self._begin_async(lambda one: end(one, group, key, until_ms=until_ms))

    def _start(self, connection: Connection, group: str, key: str, until_ms: int) -> float | None:
        """None: work. 0: done before. Else the seconds for which another worker has it in hand."""
        now_ms = self._clock.now_ms()
        records = self._records
        if records.take(connection, group, key, now_ms=now_ms, until_ms=until_ms):
            return None
        if records.take_over(connection, group, key, now_ms=now_ms, until_ms=until_ms):
            return None
        working_until_ms = records.working_until(connection, group, key)
        if working_until_ms is None:  # Given up in this moment.
            return AGAIN_S
        return max(AGAIN_S, (working_until_ms - now_ms) / 1000) if working_until_ms else 0.0

    # One transaction.

    def _begin(self, work: Callable[[Connection], T]) -> T:
        assert isinstance(self.engine, Engine)
        with self.engine.begin() as connection:
            return work(connection)

    async def _begin_async(self, work: Callable[[Connection], T]) -> T:
        assert isinstance(self.engine, AsyncEngine)
        async with self.engine.begin() as connection:
            return await connection.run_sync(work)

    def _run(self, work: Callable[[Connection], T]) -> Awaitable[T]:
        if isinstance(self.engine, AsyncEngine):
            return self._begin_async(work)
        return Ready(self._begin(work))


def _come_again(message: Message, seconds: float) -> None:
    if seconds:
        message.retry(after=seconds, reason="another worker of this group has it in hand")
