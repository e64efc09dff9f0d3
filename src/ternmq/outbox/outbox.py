"""`Outbox`: messages that exist if and only if the caller's transaction commits.

    outbox = Outbox(engine, mq)
    with Session(engine) as session, session.begin():
        session.add(payment)
        outbox.send(session, "order.paid", b"...", key="o-1")

`send` inserts a row on the session's own connection. When the session commits, the relay of this
process reads the row back and sends it. Session hooks only wake the relay: what it sends is decided
by the committed rows in the table alone, so a savepoint that was rolled back, or an outer
transaction that is still open, cannot send anything. A process that dies leaves rows to a sweeper
(`start()` in any process, or `tern outbox relay`).

Works with plain and async engines and sessions, and with the async and the blocking client; without
a client (`mq=None`) it only inserts. Any thread may send. Bodies go through the codec of the
client, or `codec=`. `cancel` takes a message back that no relay has begun to send.
"""

import asyncio
import os
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Protocol, Unpack, overload, runtime_checkable

from sqlalchemy import Connection, Engine, Table, event, insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from ternmq.client.admin.delays import CancelResult
from ternmq.client.codecs.codec import Codec, CodecName, find_codec
from ternmq.client.model.arguments import check_value
from ternmq.client.model.durations import Duration, seconds_of, typed
from ternmq.client.model.outgoing import SendOptions, call_codec, make_body, make_outgoing
from ternmq.client.model.stored_message import order_hash, pack
from ternmq.client.producing.deliver_once import SendsOnce
from ternmq.client.transport.fork import life
from ternmq.core.clock import Clock, SystemClock
from ternmq.core.database import Ready, lacks_table
from ternmq.core.errors import BadRequest, TernError, Unavailable
from ternmq.core.ids import check_name, id_from_text, id_to_text
from ternmq.core.log import get_logger
from ternmq.core.units import DAY_MS
from ternmq.outbox.database import Database
from ternmq.outbox.ids import MessageIds
from ternmq.outbox.relay import Counts, Relay, RelaySettings, reason
from ternmq.outbox.rows import OutboxRows
from ternmq.outbox.table import TABLE, make_table

FRESH_MAX = 20_000  # Rows that wait to be sent at once; more are left to the sweeper.
STOP_S = 10.0
CODEC_HINT = "give Outbox(…, codec='json') or a client with a codec"
_PENDING = "ternmq.outbox"

Transactional = Session | AsyncSession | Connection | AsyncConnection

log = get_logger()


class Messenger(Protocol):
    """A client, blocking or not: something that runs work with the async client on its loop."""

    def submit(self, job: Any) -> "Future[Any]": ...


@runtime_checkable
class AsksBeforeCancel(Protocol):
    """A client whose `cancel` asks others first; one made for tests need not."""

    def ask_before_cancel(self, cancel: Callable[[str], Awaitable[CancelResult]]) -> None: ...


class Outbox:
    """The outbox table of one or several databases."""

    def __init__(
        self,
        engine: Engine | AsyncEngine | Sequence[Engine | AsyncEngine],
        mq: Messenger | None = None,
        *,
        table: str | Table = TABLE,
        schema: str | None = None,
        codec: Codec | CodecName | None = None,
        settings: RelaySettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        several = list(engine) if isinstance(engine, Sequence) else []
        engines = [engine] if isinstance(engine, Engine | AsyncEngine) else several
        if not engines or not all(isinstance(one, Engine | AsyncEngine) for one in engines):
            raise BadRequest(
                "an outbox takes an engine, or several: create_engine(…) or "
                "create_async_engine(…) of SQLAlchemy"
            )
        if mq is not None and not callable(getattr(mq, "submit", None)):
            raise BadRequest(
                "an outbox takes a connected client: Outbox(engine, mq), with mq from "
                "ternmq.connect(…)"
            )
        check_value("table", table, str | Table)
        check_value("clock", clock, Clock | None)
        check_value("schema", schema, str | None)
        check_value("settings", settings, RelaySettings | None)
        self.table = table if isinstance(table, Table) else make_table(table, schema)
        self._databases = [Database(one) for one in engines]
        self._mq = mq
        self._codec = find_codec(getattr(mq, "codec", None) if codec is None else codec)
        self._clock: Clock = clock or SystemClock()
        self._ids = MessageIds(self._clock)
        self._settings = settings
        self._begin()
        _listen()

    def _begin(self) -> None:
        """What belongs to this process."""
        self._life = life.number
        self._lock = threading.Lock()
        self._fresh: list[tuple[int, int]] = []
        self._draining = False
        self._drained = threading.Event()
        self._drained.set()
        self._sweeper: Future[None] | None = None
        self._swept = threading.Event()
        self._swept.set()
        self._loop: asyncio.AbstractEventLoop | None = None  # The client's, once it has run.
        for database in self._databases:
            database.forget()
        owner = f"{socket.gethostname()[:32]}.{os.getpid()}.{secrets.token_hex(4)}"
        self.relay = Relay(
            self._databases,
            OutboxRows(self.table),
            owner=owner,
            clock=self._clock,
            settings=self._settings,
        )
        if self._mq is not None:
            self._submit(self._learn)

    async def _learn(self, mq: SendsOnce) -> None:
        self._loop = asyncio.get_running_loop()
        self.relay.learn(mq)
        if isinstance(mq, AsksBeforeCancel):
            mq.ask_before_cancel(self._cancel_alone)

    @property
    def counts(self) -> Counts:
        """What this process has sent from the outbox."""
        return self.relay.counts

    def create_tables(self) -> Awaitable[None]:
        """Make the table where it is missing; await it with async engines."""
        made = [
            database.run_blocking(lambda connection: self.table.metadata.create_all(connection))
            for database in self._databases
        ]

        async def wait() -> None:
            for one in made:
                await one

        return wait() if any(database.is_async for database in self._databases) else Ready(None)

    # Sending.

    @overload
    def send(
        self, session: Session, topic: str, body: Any, **options: Unpack[SendOptions]
    ) -> str: ...

    @overload
    def send(
        self, session: AsyncSession, topic: str, body: Any, **options: Unpack[SendOptions]
    ) -> Awaitable[str]: ...

    @overload
    def send(
        self, session: Connection, topic: str, body: Any, **options: Unpack[SendOptions]
    ) -> str: ...

    @overload
    def send(
        self, session: AsyncConnection, topic: str, body: Any, **options: Unpack[SendOptions]
    ) -> Awaitable[str]: ...

    def send(self, session: Transactional, topic: str, body: Any, **options: Any) -> Any:
        """Insert one message in the session's transaction; returns its id.

        Options are those of `mq.send`. Await it with an `AsyncSession`. A `Connection` of
        SQLAlchemy's Core (or an `AsyncConnection`) will do; nobody is woken by its commit, the
        relay finds the message when it looks next.
        """
        if not isinstance(session, Connection | AsyncConnection):
            _check_session("send", session)
        values = self.values(topic, body, options)
        if isinstance(session, AsyncSession):
            return session.run_sync(self._insert, values)
        if isinstance(session, AsyncConnection):
            return session.run_sync(self._insert_only, values)
        if isinstance(session, Connection):
            return self._insert_only(session, values)
        return self._insert(session, values)

    def values(self, topic: str, body: Any, options: Any) -> dict[str, Any]:
        """The columns of a new row, checked.

        A message for later waits in the table until it is due: handing it to a delay server could
        not be recognised as a repeat after a crash. It keeps no order and has no sender yet.
        """
        if self._life != life.number:
            self._begin()
        check_name("topic", topic)
        now_ms = self._clock.now_ms()
        made = make_body(body, call_codec(options, self._codec), CODEC_HINT)
        message = make_outgoing(made, options, now_ms)
        if message.delay_ms is not None:
            message = replace(message, due_at_ms=now_ms + message.delay_ms, delay_ms=None)
        mine = self._mq is not None and message.due_at_ms is None
        hashed = order_hash(topic, message.order_key) if message.due_at_ms is None else None
        ready_ms = now_ms + int(self.relay.settings.grace * 1000) if mine else now_ms
        return {
            "message_id": self._ids.take(),
            "topic": topic,
            "order_hash": hashed,
            "broker_group": self.relay.choose(topic, message.order_key) if mine else None,
            "content": pack(message),
            "created_ms": now_ms,
            "ready_ms": message.due_at_ms or ready_ms,
            "claimed_by": self.relay.owner if mine else None,
        }

    def _insert_only(self, connection: Connection, values: dict[str, Any]) -> str:
        """Without a session nobody hears of the commit: the row is anybody's at once."""
        self._number(connection.engine)
        if values["claimed_by"] is not None:
            values |= {
                "claimed_by": None,
                "broker_group": None,
                "ready_ms": values["created_ms"],
            }
        self._execute(connection, values)
        return str(values["message_id"])

    def _execute(self, session: Session | Connection, values: dict[str, Any]) -> Any:
        try:
            return session.execute(insert(self.table), values)
        except DBAPIError as error:
            if not lacks_table(error):
                raise
            raise self._no_table() from error

    def _insert(self, session: Session, values: dict[str, Any]) -> str:
        bind = session.get_bind(clause=insert(self.table))
        number = self._number(bind.engine)
        result = self._execute(session, values)
        if values["claimed_by"] is not None:
            row = result.inserted_primary_key[0]
            session.info.setdefault(_PENDING, []).append((self, number, row))
        return str(values["message_id"])

    def _number(self, engine: Engine) -> int:
        for number, database in enumerate(self._databases):
            if database.owns(engine):
                return number
        raise BadRequest(
            "this session's database is none of the outbox's engines; give them all to Outbox([…])"
        )

    # Taking back.

    @overload
    def cancel(self, session: Session, message_id: str) -> CancelResult: ...

    @overload
    def cancel(self, session: AsyncSession, message_id: str) -> Awaitable[CancelResult]: ...

    def cancel(
        self, session: Session | AsyncSession, message_id: str
    ) -> CancelResult | Awaitable[CancelResult]:
        """Take a message back in the session's transaction, by the id that `send` returned.

        CANCELLED: it will never be sent, if this transaction commits. ALREADY_DISPATCHED: a relay
        has it. UNKNOWN: it is not in the table: sent, cancelled before, or never there; `mq.cancel`
        tells a sent one. Asks no broker. Await it with an `AsyncSession`.
        """
        _check_session("cancel", session)
        check_value("message_id", message_id, str)
        name = id_to_text(id_from_text(message_id))
        if isinstance(session, AsyncSession):
            return session.run_sync(self._cancel, name)
        return self._cancel(session, name)

    def _cancel(self, session: Session, message_id: str) -> CancelResult:
        bind = session.get_bind(clause=insert(self.table))
        number = self._number(bind.engine)
        pending = session.info.get(_PENDING, [])
        own = [row for outbox, of, row in pending if outbox is self and of == number]
        connection = session.connection(bind_arguments={"clause": insert(self.table)})
        try:
            return self.relay.rows.cancel(connection, message_id, own)
        except DBAPIError as error:
            if not lacks_table(error):
                raise
            raise self._no_table() from error

    async def _cancel_alone(self, message_id: str) -> CancelResult:
        """For `mq.cancel`: in a transaction of its own, in whichever database it is."""
        for database in self._databases:
            try:
                found = await database.run(
                    lambda connection: self.relay.rows.cancel(connection, message_id, ())
                )
            except DBAPIError as error:
                if not lacks_table(error):
                    raise Unavailable(
                        f"the outbox in {database.name} cannot be asked: {reason(error)}"
                    ) from error
            else:
                if found is not CancelResult.UNKNOWN:
                    return found
        return CancelResult.UNKNOWN

    def _no_table(self) -> BadRequest:
        return BadRequest(
            f"there is no table {self.table.fullname!r} in this database: "
            "outbox.create_tables() makes it, or a migration (docs/outbox.md)"
        )

    # Waking.

    def wake(self, rows: Sequence[tuple[int, int]]) -> None:
        """Rows (number of the database, row) may be committed by now: look, and send."""
        if self._life != life.number:
            self._begin()
        with self._lock:
            self._fresh += rows[: max(0, FRESH_MAX - len(self._fresh))]
            if self._draining:
                return
            self._draining = True
            self._drained.clear()
        if not self._submit(self._drain):
            with self._lock:
                self._fresh.clear()
                self._draining = False
                self._drained.set()

    def _submit(self, job: Any) -> bool:
        assert self._mq is not None
        try:
            self._mq.submit(job)
        except (TernError, RuntimeError) as error:
            log.info("outbox rows are left to a sweeper", reason=reason(error))
            return False
        return True

    async def _drain(self, mq: SendsOnce) -> None:
        """Send fresh rows until there are none; one at a time, so that order keys keep order."""
        rows_max = self.relay.settings.rows_max
        while True:
            with self._lock:
                rows, self._fresh = self._fresh[:rows_max], self._fresh[rows_max:]
                if not rows:
                    self._draining = False
                    self._drained.set()
                    return
            for number, database in enumerate(self._databases):
                ids = [row for of, row in rows if of == number]
                if ids:
                    try:
                        await self.relay.send_fresh(mq, database, ids)
                    except Exception as error:  # Whatever it was, the rows are in the table.
                        log.warning("outbox rows are left to a sweeper", reason=reason(error))

    # Sweeping, and waiting for all of it.

    def start(self) -> None:
        """Sweep leftovers, of this process and of dead ones, until `stop`."""
        if self._mq is None:
            raise BadRequest("this outbox has no client to send with: Outbox(engine, mq)")
        if self._life != life.number:
            self._begin()
        if self._sweeper is None:
            self._swept.clear()
            self._sweeper = self._mq.submit(self._sweep)

    async def _sweep(self, mq: SendsOnce) -> None:
        try:
            await self.relay.run(mq)
        finally:
            self._swept.set()

    def stop(self) -> None:
        """End the sweeping, without waiting; rows that are under way stay safe in the table."""
        sweeper, self._sweeper = self._sweeper, None
        if sweeper is not None and self._life == life.number:
            sweeper.cancel()

    def flush(self, timeout: Duration = 10.0) -> None:
        """Block until all commits of this process so far were looked after."""
        timeout = seconds_of("timeout", timeout, 0, DAY_MS / 1000)
        self._refuse_on_loop("await outbox.aflush()")
        if not self._drained.wait(timeout):
            raise Unavailable(f"outbox rows were still being sent after {timeout:g} s")

    async def aflush(self, timeout: Duration = 10.0) -> None:
        """Flush in a coroutine."""
        await asyncio.to_thread(self.flush, timeout)

    def _refuse_on_loop(self, instead: str) -> None:
        """Blocking the event loop that has to send would wait for nothing."""
        try:
            blocked = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return
        if blocked:
            raise BadRequest(f"this would block the event loop that sends; say {instead!r}")

    def _give_up(self, error: Unavailable) -> None:
        log.warning("outbox rows are left to a sweeper", reason=error.message)

    def __enter__(self) -> "Outbox":
        self._refuse_on_loop("async with outbox")
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self.flush(STOP_S)
        except Unavailable as error:  # Safe in the table; an application may end.
            self._give_up(error)
        self.stop()
        self._swept.wait(STOP_S)

    async def __aenter__(self) -> "Outbox":
        self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        try:
            await self.aflush(STOP_S)
        except Unavailable as error:
            self._give_up(error)
        self.stop()
        await asyncio.to_thread(self._swept.wait, STOP_S)


def _check_session(call: str, session: object) -> None:
    if not isinstance(session, Session | AsyncSession):
        raise BadRequest(
            f"outbox.{call}() takes a Session or an AsyncSession, in whose transaction it is, "
            f"not {typed(session)}"
        )


def _after_commit(session: Session) -> None:
    """Savepoints come here too: only the outermost commit makes anything visible."""
    if session.in_nested_transaction():
        return
    pending: list[tuple[Outbox, int, int]] | None = session.info.pop(_PENDING, None)
    if not pending:
        return
    by_outbox: dict[int, tuple[Outbox, list[tuple[int, int]]]] = {}
    for outbox, number, row in pending:
        by_outbox.setdefault(id(outbox), (outbox, []))[1].append((number, row))
    for outbox, rows in by_outbox.values():
        outbox.wake(rows)


def _after_rollback(session: Session) -> None:
    if not session.in_nested_transaction():
        session.info.pop(_PENDING, None)


def _listen() -> None:
    """For all sessions, once: a listener per session would cost more than the insert."""
    if not event.contains(Session, "after_commit", _after_commit):
        event.listen(Session, "after_commit", _after_commit)
        event.listen(Session, "after_rollback", _after_rollback)
