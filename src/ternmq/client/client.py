"""`connect` and the client it returns, called `mq` in the documents.

One `Client` belongs to one event loop and one process; what it has there is a `ClientSession`, made
at the first call and again in a forked child. Every public method is thin: find the session, then
hand over to producer, consumer, reader or admin.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar, Unpack

from ternmq.batch.encoder import Outgoing
from ternmq.client.admin.admin import Admin
from ternmq.client.admin.delays import CancelResult, Delayed, Delays
from ternmq.client.codecs.codec import Codec, CodecName
from ternmq.client.config import DEFAULT_APP, ClientConfig, ConnectOptions, make_config
from ternmq.client.confirming.confirm import (
    check_group,
    check_receipt,
    confirm,
    make_confirm_request,
    refuse_confirm,
    take_confirm_request,
)
from ternmq.client.consuming.consumer import Consumer
from ternmq.client.consuming.detached_consumer import DetachedConsumer
from ternmq.client.consuming.subscription_plan import (
    ConsumerOptions,
    consumer_options,
    make_plan,
)
from ternmq.client.model.arguments import check_value
from ternmq.client.model.durations import Duration, typed
from ternmq.client.model.outgoing import (
    SendManyOptions,
    SendOptions,
    listed_bodies,
    take_wait,
)
from ternmq.client.model.receipt import BatchReceipt, Receipt
from ternmq.client.model.times import shown
from ternmq.client.producing.producer import Producer
from ternmq.client.producing.send_buffer import Stats
from ternmq.client.producing.send_many import SendMany, send_many
from ternmq.client.producing.send_once import OnceReceipt
from ternmq.client.reading.calls import ReadingCalls
from ternmq.client.session import ClientSession
from ternmq.client.tracing import TRACING, sending_one, traced_list
from ternmq.client.transactions.checker import CheckFunction
from ternmq.client.transactions.detached import (
    Detached,
    DetachedEnding,
    DetachedOptions,
    EndOptions,
    end_detached,
)
from ternmq.client.transactions.transaction import Transaction, TransactionOptions
from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.fork import life
from ternmq.client.transport.login import find_login
from ternmq.core.clock import Clock, SystemClock
from ternmq.core.errors import BadRequest, Closed, TernError, Unavailable
from ternmq.core.ids import ID_TEXT_SIZE, check_name, id_from_text, id_to_text
from ternmq.core.log import get_logger
from ternmq.discovery.url import parse_url, with_tls_files
from ternmq.security.sealing.master_keys import find_master_keys

T = TypeVar("T")

log = get_logger()


def connect(url: str, **options: Unpack[ConnectOptions]) -> "Client":
    """A client of the cluster whose meta server is at `url` (`tern://host:port[,host:port]`,
    over TLS `terns://…`).

    Use it as `async with ternmq.connect(...) as mq`, or `mq = await ternmq.connect(...)` and
    `await mq.close()`. While no meta server answers it waits `wait` seconds (0); with `lazy=True`
    for nobody. Options: see `ClientConfig`.
    """
    return Client(url, make_config(options))


CancelFirst = Callable[[str], Awaitable[CancelResult]]
"""Takes a message back by its id, if it has it."""


class Client(ReadingCalls):
    """Sends, consumes, reads and administers. Made by `connect`."""

    def __init__(self, url: str, config: ClientConfig, clock: Clock | None = None) -> None:
        parse_url(url)  # Refuse a bad one before anything else.
        self._login, plain = find_login(url, config, os.environ)
        self._url = with_tls_files(plain, config.tls_files)
        if self._login is not None and config.app == DEFAULT_APP:
            config = replace(config, app=self._login.user)
        self._masters = find_master_keys(config.keys, os.environ)
        self._config = config
        self._clock: Clock = clock or SystemClock()
        self._session: ClientSession | None = None
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cancels_first: list[CancelFirst] = []

    @property
    def app(self) -> str:
        return self._config.app

    @property
    def config(self) -> ClientConfig:
        return self._config

    @property
    def codec(self) -> Codec | CodecName | None:
        """What bodies go through, as `connect` was told."""
        return self._config.codec

    # Coming and going.

    def __await__(self) -> Generator[Any, None, "Client"]:
        return self._start().__await__()

    async def __aenter__(self) -> "Client":
        return await self._start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def _start(self) -> "Client":
        """Learn the routes, so that a wrong url shows at once; or wait for them, or look for them
        in the background, as `wait` and `lazy` say."""
        self._loop = asyncio.get_running_loop()
        try:
            if self._config.spool is not None:
                self.sender()  # Goes on with what an earlier process left.
            await self._open().find_servers(self._url)
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Leave all groups, send what was accepted, close the connections."""
        if self._closed:
            return
        self._leave_parent()
        session = self._session
        if session is not None:
            await session.finish()
        self._closed = True
        if session is not None:
            await session.cluster.close()

    # Sending.

    async def send(self, topic: str, body: Any, **options: Unpack[SendOptions]) -> Receipt:
        """Store one message and return its receipt once it is safe.

        Options: key, tag, properties, order_key, ttl (seconds or timedelta), priority (0 to 255),
        delay (seconds or timedelta) or at (aware datetime) for later, codec. With `confirm_group`
        it returns when that group has acked the message, or raises `NotConfirmed` after `timeout`
        seconds (30). Cancelling the call does not take the message back.
        """
        if TRACING.tracer is not None:
            with sending_one(TRACING.tracer, topic, options):
                return await self._send_confirmed(topic, body, options)
        if "confirm_group" in options or "timeout" in options:
            return await self._send_confirmed(topic, body, options)
        session = self._session
        if session is None or session.life != life.number or session.producer is None:
            return await self.sender().send(topic, body, options)
        return await session.producer.send(topic, body, options)

    async def send_many(
        self, topic: str, bodies: Sequence[Any], **options: Unpack[SendManyOptions]
    ) -> BatchReceipt:
        """Store many messages, split as needed, in order; the receipt is lazy.

        `bodies` are bodies, or `Outgoing` for messages that differ in more than the body; options
        apply to all. If some parts fail, the receipt lists them in `.failures`; if all do, the
        first error is raised. `confirm_group` and `timeout` as for `send`, for all of them.
        `wait_for_store=False` waits for room in the send buffer only: one-way, as `send_nowait`.
        """
        waits = take_wait(options) if options else True
        wanted = take_confirm_request(options) if options else None  # type: ignore[arg-type]
        bodies = listed_bodies(bodies)
        if not waits:
            refuse_confirm(wanted)
            return await self._send_unwatched(topic, bodies, options)
        if wanted is None:
            return await self._send_bulk(topic, bodies, options)
        await check_group(self.cluster, topic, wanted.group)
        receipt = await self._send_bulk(topic, bodies, options)
        await confirm(self.cluster, receipt, wanted, self._clock)
        return receipt

    async def _send_bulk(
        self, topic: str, bodies: Sequence[Any], options: SendOptions
    ) -> BatchReceipt:
        producer, spooling = self.sender(), self._open().spooling
        if TRACING.tracer is None and spooling is None:
            return await send_many(producer, topic, bodies, options)
        with traced_list(topic, bodies, options) as traced:
            if spooling is not None:
                return await spooling.send_many(topic, traced, options)
            return await send_many(producer, topic, traced, options)

    async def _send_unwatched(
        self, topic: str, bodies: Sequence[Any], options: SendOptions
    ) -> BatchReceipt:
        producer, spooling = self.sender(), self._open().spooling
        with traced_list(topic, bodies, options) as traced:
            if spooling is not None:
                return await spooling.accept_many(topic, traced, options)
            return await SendMany(producer, topic, options).accept_when_room(traced)

    async def _send_confirmed(self, topic: str, body: Any, options: SendOptions) -> Receipt:
        wanted = take_confirm_request(options)  # type: ignore[arg-type]
        if wanted is None:
            return await self.sender().send(topic, body, options)
        await check_group(self.cluster, topic, wanted.group)
        receipt = await self.sender().send(topic, body, options)
        await confirm(self.cluster, receipt, wanted, self._clock)
        return receipt

    async def confirm(
        self, receipt: Receipt | BatchReceipt, group: str, timeout: Duration | None = None
    ) -> None:
        """Wait until a group has acked what was sent before; raises `NotConfirmed`."""
        checked = check_receipt(receipt)
        wanted = make_confirm_request(group, timeout)
        await confirm(self.cluster, checked, wanted, self._clock)

    async def send_once(
        self, topic: str, rows: Sequence[Outgoing], broker_group: str | None = None
    ) -> list[OnceReceipt]:
        """Store messages that have ids of their own (`explicit_id`), each at most once.

        An id that the topic has already, however long ago it came, is not stored again: its
        receipt says `.duplicate` and where the first is. Ids are known per broker group, so name
        the same group whenever the same rows may be sent again.
        """
        with traced_list(topic, rows, {}) as traced:
            return await self._open().once_sender().send(topic, traced, broker_group)

    def send_nowait(self, topic: str, body: Any, **options: Unpack[SendOptions]) -> None:
        """Accept one message and return at once; `BufferFull` when there is no room.

        Failures are counted in `stats()` and told to `on_error`, or logged.
        """
        session = self._session
        if TRACING.tracer is not None:
            with sending_one(TRACING.tracer, topic, options):
                self.sender().send_nowait(topic, body, options)
        elif session is None or session.life != life.number or session.producer is None:
            self.sender().send_nowait(topic, body, options)
        else:
            session.producer.send_nowait(topic, body, options)

    def send_many_nowait(
        self, topic: str, bodies: Sequence[Any], **options: Unpack[SendOptions]
    ) -> None:
        """Accept a list and return at once: all of it, or `BufferFull` and nothing.

        Failures of single messages are told as for `send_nowait`.
        """
        bodies = listed_bodies(bodies)
        refuse_confirm(take_confirm_request(options) if options else None)  # type: ignore[arg-type]
        producer, spooling = self.sender(), self._open().spooling
        with traced_list(topic, bodies, options) as traced:
            if spooling is not None:
                spooling.send_many_nowait(topic, traced, options)
            else:
                SendMany(producer, topic, options).accept(traced)

    async def flush(self) -> None:
        """Wait until everything accepted so far is stored or given up."""
        await self.sender().flush()

    def stats(self) -> Stats:
        """Counts since the client was made."""
        return self.sender().stats()

    # Messages for later.

    async def cancel(self, message: Delayed) -> CancelResult:
        """Take a delayed message back, by receipt, row or id, before it is due.

        CANCELLED, ALREADY_DISPATCHED or UNKNOWN, durable and always true; may be repeated. By id
        the outboxes of this client, all delay servers and, where they know nothing, the brokers are
        asked; if one of them is silent: `Unavailable`, not UNKNOWN.
        """
        if isinstance(message, str) and len(message) == ID_TEXT_SIZE:
            for cancel in self._cancels_first:
                result = await cancel(id_to_text(id_from_text(message)))
                if result is not CancelResult.UNKNOWN:
                    return result
        if not isinstance(message, str | bytes):
            return await Delays(self.cluster).change("cancel", message)
        try:
            result = await Delays(self.cluster).change("cancel", message)
        except Unavailable:  # No delay server, for example: an outbox needs none.
            with suppress(TernError):
                if await self.find(id=message, limit=1):
                    return CancelResult.ALREADY_DISPATCHED
            raise
        if result is CancelResult.UNKNOWN and await self.find(id=message, limit=1):
            return CancelResult.ALREADY_DISPATCHED
        return result

    def ask_before_cancel(self, cancel: CancelFirst) -> None:
        """Let `cancel` ask this first: an outbox, whose messages no server has yet."""
        if cancel not in self._cancels_first:
            self._cancels_first.append(cancel)

    async def reschedule(
        self,
        message: Delayed,
        *,
        at: datetime | None = None,
        delay: Duration | None = None,
    ) -> CancelResult:
        """Let a delayed message be due at another time: RESCHEDULED, or why not, as `cancel`."""
        return await Delays(self.cluster).change("reschedule", message, at=at, delay=delay)

    async def fire_now(self, message: Delayed) -> CancelResult:
        """Let a delayed message go out at once: FIRED, or why not, as `cancel`."""
        return await Delays(self.cluster).change("fire", message)

    # Transactions.

    def transaction(self, **options: Unpack[TransactionOptions]) -> Transaction:
        """Messages that become visible together when the block ends well; use `async with`.

        Needs a checker (`transaction_checker`). Options: first_check, check_interval (seconds or
        timedelta), checks_max, broker_group; else the broker's settings hold.
        """
        session = self._open()
        if session.checker is None:
            raise BadRequest(
                "a transaction needs somebody to ask when it is left open: set "
                "mq.transaction_checker(function) first"
            )
        return Transaction(session.half_sender(), options)

    def transaction_checker(self, function: CheckFunction) -> CheckFunction:
        """Let this client answer for the transactions of its application; may be a decorator.

        The function gets a `TransactionCheck` and answers `Verdict.COMMIT`, `ROLLBACK` or
        `UNKNOWN`. Call it in the event loop; a second call replaces the function.
        """
        session = self._open()
        if not callable(function):
            raise BadRequest(f"a transaction checker is a function, not {shown(function)}")
        session.check_with(function)
        return function

    def detached(self, name: str, **options: Unpack[DetachedOptions]) -> Detached:
        """Stage rows that are committed by name, maybe by another process.

        Options: attempt (0), expires (seconds or timedelta), broker_group, fenced (True).
        """
        return Detached(self._open().half_sender(), name, options)

    async def commit_detached(
        self,
        name: str,
        attempts: Sequence[int] = (),
        broker_group: str | None = None,
        **options: Unpack[EndOptions],
    ) -> DetachedEnding:
        """Publish the named attempts (none named: all that are open) once; may be repeated.

        With `fenced=False` the first commit of a name decides, for attempts `elsewhere` too.
        """
        sender = self._open().half_sender()
        return await end_detached(sender, name, attempts, "commit", broker_group, options)

    async def abort_detached(
        self,
        name: str,
        attempts: Sequence[int] = (),
        broker_group: str | None = None,
        **options: Unpack[EndOptions],
    ) -> DetachedEnding:
        """Roll back the named attempts (none named: all) that are not published."""
        sender = self._open().half_sender()
        return await end_detached(sender, name, attempts, "rollback", broker_group, options)

    async def look_detached(self, name: str, broker_group: str | None = None) -> DetachedEnding:
        """How an unfenced transaction stands: committed with which attempts, or not (yet)."""
        sender = self._open().half_sender()
        return await end_detached(sender, name, [], "look", broker_group, {"fenced": False})

    # Receiving.

    def consumer(
        self, topics: str | Sequence[str], *, group: str, **options: Unpack[ConsumerOptions]
    ) -> Consumer:
        """A consumer of a group on one or several topics; use it in `async with`.

        Options: start ('earliest', 'latest', a sequence, an aware datetime; for new groups),
        prefetch (un-acked messages held at most), codec.
        """
        session = self._open()
        taken = consumer_options(dict(options), self._config.codec)
        plan = make_plan(topics, group, taken, timeout=self._config.request_timeout)
        return session.make_consumer(plan)

    def detached_consumer(
        self, topic: str, *, group: str, **options: Unpack[ConsumerOptions]
    ) -> DetachedConsumer:
        """A consumer whose messages outlive it and are settled by handle, in any process.

        For gateways, which keep nothing. Options: as for `consumer`, as far as they are about the
        group: start, tag, filter, ordered, attempts_max, codec.
        """
        check_value("topic", topic, str)
        taken = consumer_options(dict(options), self._config.codec)
        plan = make_plan(topic, group, taken, timeout=self._config.request_timeout)
        return DetachedConsumer(self.cluster, plan)

    @property
    def admin(self) -> Admin:
        """Topics, groups, ledger, status."""
        return Admin(self.cluster)

    def broker_groups(self) -> list[str]:
        """The broker groups that are there, as far as this client knows."""
        return self.cluster.masters()

    def taking_groups(self) -> list[str]:
        """The broker groups that new messages go to: without those that are being drained."""
        return self.cluster.writable_groups()

    def slot_owner(self, topic: str, order_key: str) -> str | None:
        """The broker group that an order key lies on now; None while its slot is being moved."""
        check_name("topic", topic)
        check_value("order_key", order_key, str)
        return self.cluster.slot_owner(topic, order_key)

    def submit(self, job: "Callable[[Client], Coroutine[Any, Any, T]]") -> "Future[T]":
        """Run `job(mq)` on this client's event loop; any thread may call this."""
        if not callable(job):
            raise BadRequest(
                f"job is {typed(job)}; it is a coroutine function that takes the client"
            )
        session, loop = self._session, self._loop
        here = session is not None and session.life == life.number
        if not here or loop is None or loop.is_closed():
            raise Closed("this client is not running in this process")

        async def work() -> T:
            return await job(self)

        return asyncio.run_coroutine_threadsafe(work(), loop)

    # The session of this process.

    @property
    def cluster(self) -> Cluster:
        """The servers, for parts of ours that speak to them directly."""
        return self._open().cluster

    def sender(self) -> Producer:
        """The producer; made in the event loop's thread."""
        return self._open().make_producer()

    def _open(self) -> ClientSession:
        """The session; made at the first call, and again in a forked child."""
        session = self._session
        if session is None or session.life != life.number or self._closed:
            session = self._make_session()
        return session

    def _make_session(self) -> ClientSession:
        self._leave_parent()
        if self._closed:
            raise Closed("this client is closed")
        self._session = ClientSession(
            self._url, self._config, self._clock, self._login, self._masters
        )
        return self._session

    def _leave_parent(self) -> None:
        """In a forked child: let go of what the parent has."""
        session = self._session
        if session is not None and session.life != life.number:
            self._session = None
            session.abandon()
