"""One server, as the client sees it: a connection that is opened when needed and again when lost.

However many topics, producers and consumers use a server, they share this one connection (J17).
`get` opens it, one attempt for all who ask at the same time; after a failure the next attempt waits
50 ms, doubling to 2 s, with jitter, so that a thousand clients do not come back at once. A link
never repeats requests: who sent something knows whether it may be sent again.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ternmq.client.transport.answer_deadlines import AnswerDeadlines
from ternmq.core.errors import Closed, ProtocolError, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.core.retry import doubled
from ternmq.rpc.connection import Connection
from ternmq.rpc.node_proof import Greeting
from ternmq.wire.frame import Frame
from ternmq.wire.messages.hello import Notice
from ternmq.wire.numbers import Command
from ternmq.wire.record import unpack

BACK_OFF_MIN_S = 0.05
BACK_OFF_MAX_S = 2.0

log = get_logger()


def back_off(failures: int) -> float:
    """Seconds to wait after that many failures in a row."""
    longest = doubled(failures, first=BACK_OFF_MIN_S, most=BACK_OFF_MAX_S)
    return longest * random.uniform(0.5, 1.0)


class Link:
    """The only connection of this client to one server."""

    def __init__(
        self,
        find: Callable[[], Awaitable[str]],
        greeting: Greeting,
        *,
        timeout: float,
        check: Callable[[Connection], TernError | None] = lambda connection: None,
    ) -> None:
        """`check` returns what is wrong with the server that answers, if anything."""
        self._check = check
        self._find = find
        self._greeting = greeting
        self._timeout = timeout
        self._opening: asyncio.Task[Connection] | None = None
        self._failures = 0
        self._open_after = 0.0
        self._moved: asyncio.Event | None = None
        """There while somebody rests: news of the server ends that."""
        self._closed = False
        self.deadlines = AnswerDeadlines()
        """Of requests on this link whose callers wait for seconds at most."""
        self.connection: Connection | None = None
        """None while there is none; requests may be started on it without awaiting."""
        self.pushes: dict[int, Callable[[bytearray], None]] = {}
        """Who is told of what a server sends unasked, by command; notices have their own list."""
        self.watchers: list[Callable[[], None]] = []
        """Called when the connection is lost; requests under way fail right after."""
        self.notices: list[Callable[[Notice], None]] = []
        """Called when the server says something unasked."""
        self.stopping = False
        """The server said that it is about to stop; over when it is back."""

    @property
    def closed(self) -> bool:
        """For good: the client is closed."""
        return self._closed

    async def get(self) -> Connection:
        """The connection, opened if needed; raises what kept it from opening."""
        connection = self.connection
        if connection is not None and not connection.closed:
            return connection
        if self._closed:
            raise Closed("this client is closed")
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name="tern-connect")
            self._opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)

    async def _open(self) -> Connection:
        loop = asyncio.get_running_loop()
        wait = self._open_after - loop.time()
        if wait > 0:
            await self.rest(wait)
        try:
            address = await self._find()
            connection = await Connection.open(address, self._greeting, timeout=self._timeout)
            wrong = self._check(connection)
            if wrong is not None:
                connection.abort()
                raise wrong
        except TernError:
            self._failures += 1
            self._open_after = loop.time() + back_off(self._failures - 1)
            raise
        connection.listen(lost=self._lost, pushed=self._pushed)
        self.connection = connection
        self.stopping = False
        self._failures = 0
        # A server that accepts and drops at once must not be called in a tight loop.
        self._open_after = loop.time() + back_off(0)
        return connection

    def _opened(self, opening: "asyncio.Task[Connection]") -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # Whoever asked has seen it; nobody else needs to be told.

    def _pushed(self, frame: Frame) -> None:
        """Kinds that only a newer client knows are passed over."""
        hear_other = self.pushes.get(frame.command)
        if hear_other is not None:
            hear_other(frame.payload)
        elif frame.command == Command.NOTICE:
            with suppress(ProtocolError):
                notice = unpack(frame.payload, Notice)
                self.stopping = self.stopping or notice.kind == "stopping"
                for hear in list(self.notices):
                    hear(notice)

    def _lost(self, error: TernError) -> None:
        connection, self.connection = self.connection, None
        if connection is not None and not self._closed:
            log.info("connection lost", address=connection.address, reason=str(error))
        for watcher in list(self.watchers):
            watcher()

    def move(self, address: str) -> None:
        """The server is at this address now: a connection to another one is of no more use, even
        if it still stands; and who rests after failures has no reason to."""
        connection = self.connection
        if connection is not None and connection.address != address:
            connection.give_up(Unavailable(f"it is at {address} now, not {connection.address}"))
        elif connection is None:
            self._failures = 0
            if self._moved is not None:
                self._moved.set()

    async def rest(self, seconds: float) -> None:
        """Wait before the next attempt; not longer than until there is news of the server."""
        if self._moved is None or self._moved.is_set():
            self._moved = asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._moved.wait()

    async def close(self) -> None:
        self._closed = True
        self.deadlines.stop()
        opening = self._opening
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
        if self.connection is not None:
            await self.connection.close()
            self.connection = None

    def abandon(self) -> None:
        """In a forked child: the socket is the parent's, let go of it without a word."""
        self._closed = True
        if self.connection is not None:
            self.connection.abandon()
            self.connection = None
