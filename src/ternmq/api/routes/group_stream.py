"""`GET …/stream` of a group: its messages as server-sent events, one after the other as they come.

Each event has what `pull` gives, ack id and all. With `ack=handle` the caller settles, as after a
pull; with `ack=sent` a message is acked when it was written to the caller's socket, for those who
only look on: what was lost on the way does not come again. The next messages are taken when the
last ones were written, so a caller that does not read is not sent to. What was taken and could not
be written goes back to the group at once. A stream keeps no state that another one needs: after a
lost connection the caller opens the next, here or at another console.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from ternmq.api.http_consumers import LEASE_MS_MAX, MAX_ROWS, HttpConsumers
from ternmq.api.problems import problem
from ternmq.api.routes.pull import check_names, pulled_fields
from ternmq.api.service import service_of
from ternmq.client.consuming.detached_consumer import DetachedMessage, HandleVerdict
from ternmq.core.errors import BadRequest, OverLimit, TernError
from ternmq.core.log import get_logger

router = APIRouter(tags=["consume"])

STREAMS_MAX = 200
KEEP_ALIVE_MS = 15_000
Acking = Literal["handle", "sent"]

log = get_logger()


class GroupStream:
    """The messages of one group on their way to one caller."""

    open = 0
    """How many there are in this process."""

    def __init__(
        self, consumers: HttpConsumers, named: tuple[str, str], *, rows: int, lease_ms: int
    ) -> None:
        self._consumers = consumers
        self._topic, self._group = named
        self._rows = rows
        self._lease_ms = lease_ms
        self._giving_back: set[asyncio.Task[None]] = set()

    async def events(self, acking: Acking) -> AsyncIterator[bytes]:
        """Until the caller goes, or the group does."""
        GroupStream.open += 1
        taken: list[DetachedMessage] = []
        try:
            yield b"retry: 2000\n\n"
            while True:
                taken = await self._consumers.pull(
                    self._topic,
                    self._group,
                    rows=self._rows,
                    wait_ms=KEEP_ALIVE_MS,
                    lease_ms=self._lease_ms,
                )
                if not taken:
                    yield b": still here\n\n"
                    continue
                yield b"".join(map(event_of, taken))
                sent, taken = taken, []
                if acking == "sent":
                    await self._settle(sent, "ack")
        except TernError as error:
            yield b"event: problem\ndata: %b\n\n" % msgspec.json.encode(problem(error))
        finally:
            GroupStream.open -= 1
            if taken:
                task = asyncio.create_task(self._give_back(taken))
                self._giving_back.add(task)
                task.add_done_callback(self._giving_back.discard)

    async def _give_back(self, taken: list[DetachedMessage]) -> None:
        try:
            await self._settle(taken, "back")
        except TernError as error:
            log.info("messages of a stream come when their lease is over", reason=error.message)

    async def _settle(
        self, messages: list[DetachedMessage], outcome: Literal["ack", "back"]
    ) -> None:
        verdicts = [HandleVerdict(handle=each.handle, outcome=outcome) for each in messages]
        await self._consumers.by_handle(self._topic, self._group).settle(verdicts)


def event_of(pulled: DetachedMessage) -> bytes:
    """One message; JSON has no line breaks of its own."""
    message = pulled.message
    where = f"{message.broker_group}/{message.sequence}".encode()
    fields = msgspec.json.encode(pulled_fields(pulled), enc_hook=str)
    return b"id: %b\nevent: message\ndata: %b\n\n" % (where, fields)


@router.get(
    "/topics/{topic}/groups/{group}/stream",
    summary="Server-sent events: the messages of a group as they come",
)
async def stream(
    request: Request,
    topic: str,
    group: str,
    max: int = 100,
    lease_ms: int = 60_000,
    ack: Acking = "handle",
) -> Response:
    """`max` at a time; `ack`: by `handle`, with `settle`, or when it was `sent`."""
    check_names(topic, group)
    if not 1 <= max <= MAX_ROWS:
        raise BadRequest(f"max is {max}; it is 1 to {MAX_ROWS}")
    if not 1 <= lease_ms <= LEASE_MS_MAX:
        raise BadRequest(f"lease_ms is {lease_ms}; it is 1 to {LEASE_MS_MAX}")
    if GroupStream.open >= STREAMS_MAX:
        raise OverLimit(f"{STREAMS_MAX} streams are open here already")
    consumers = service_of(request).consumers
    await consumers.get(topic, group)
    events = GroupStream(consumers, (topic, group), rows=max, lease_ms=lease_ms).events(ack)
    headers = {"Cache-Control": "no-store"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)
