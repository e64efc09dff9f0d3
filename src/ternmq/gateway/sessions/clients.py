"""The clients that are there: their streams, what producers send to, and when they were last seen.

Nothing here has to survive: a gateway that is started again learns of a client by its next call.
A client is gone when it says so, when it was silent for longer than three heartbeats, or soon after
its stream broke unless it was heard again since.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from ternmq.core.clock import Clock
from ternmq.core.log import get_logger
from ternmq.gateway.protocol.codes import Code, Refused
from ternmq.gateway.sessions.callers import RocketCaller

CLIENTS_MAX = 20_000
TOPICS_MAX = 1_000
"""Of one producer; those it has sent to last are remembered."""
OUTBOX_MAX = 64
"""Commands that wait for a client to read them; more are not sent."""
SILENT_S = 35.0
"""A client sends a heartbeat every 10 s."""
BROKEN_S = 3.0
LOOK_S = 0.5

log = get_logger()


@dataclass(slots=True, eq=False)
class RocketClient:
    """One client, as far as this gateway has seen it."""

    client_id: str
    seen_at: float
    topics: dict[str, None] = field(default_factory=dict)
    """That it sends to."""
    outbox: "asyncio.Queue[Any] | None" = None
    """Leads to its stream; None while it has none."""
    broken_at: float | None = None
    """When its stream ended; None while it has one, or where it never had."""

    def sends_to(self, topic: str) -> None:
        self.topics.pop(topic, None)
        self.topics[topic] = None
        if len(self.topics) > TOPICS_MAX:
            del self.topics[next(iter(self.topics))]

    def tell(self, command: Any) -> bool:
        """Put a command on its stream; False: there is none, or it does not read."""
        if self.outbox is None or self.outbox.full():
            return False
        self.outbox.put_nowait(command)
        return True


class ClientTable:
    """All clients of one gateway process."""

    def __init__(self, clock: Clock, gone: Callable[[str], Awaitable[None]]) -> None:
        """`gone` is told of every client that is not there any more."""
        self._clock = clock
        self._gone = gone
        self._clients: dict[str, RocketClient] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def seen(self, caller: RocketCaller) -> RocketClient:
        """A call came from it."""
        now = self._clock.monotonic()
        client = self._clients.get(caller.client_id)
        if client is None:
            if len(self._clients) >= CLIENTS_MAX:
                raise Refused(
                    Code.TOO_MANY_REQUESTS, f"{CLIENTS_MAX} clients are on this gateway already"
                )
            client = self._clients[caller.client_id] = RocketClient(caller.client_id, now)
        client.seen_at = now
        return client

    def open_stream(self, caller: RocketCaller) -> "tuple[RocketClient, asyncio.Queue[Any]]":
        """A client that opens a second stream is told things on that one."""
        client = self.seen(caller)
        outbox: asyncio.Queue[Any] = asyncio.Queue(OUTBOX_MAX)
        client.outbox, client.broken_at = outbox, None
        return client, outbox

    def close_stream(self, client: RocketClient, outbox: "asyncio.Queue[Any]") -> None:
        if client.outbox is outbox:
            client.outbox, client.broken_at = None, self._clock.monotonic()

    def producers_of(self, topic: str) -> list[RocketClient]:
        """Clients with a stream that send to a topic."""
        return [
            client
            for client in self._clients.values()
            if client.outbox is not None and topic in client.topics
        ]

    async def forget(self, client_id: str) -> None:
        """A client has said its last word."""
        if self._clients.pop(client_id, None) is not None:
            await self._gone(client_id)

    def _is_gone(self, client: RocketClient, now: float) -> bool:
        if client.outbox is not None:
            return False
        if client.broken_at is not None and client.seen_at <= client.broken_at:
            return now - client.broken_at > BROKEN_S
        return now - client.seen_at > SILENT_S

    async def run(self) -> None:
        """Look for clients that went without a word."""
        while True:
            await asyncio.sleep(LOOK_S)
            now = self._clock.monotonic()
            for client in [each for each in self._clients.values() if self._is_gone(each, now)]:
                log.info("a client went without a word", client=client.client_id)
                await self.forget(client.client_id)
