"""Where a message for later is by now: with its delay server, cancelled, or in a broker.

The receipt of a delayed message has the sequence of the delay server. The broker gives it another
one when it fires, and under the sequence of the receipt it has another message. So the delay server
is asked what became of it, by its id, and then the brokers where it is. Looks, never changes.
"""

import asyncio
from typing import NamedTuple

from ternmq.client.model.receipt import BatchReceipt, Receipt
from ternmq.client.transport.cluster import Cluster
from ternmq.core.clock import Clock
from ternmq.core.errors import TernError
from ternmq.wire.messages.delays import DelayFind, DelayRows
from ternmq.wire.messages.publish import Find, FoundPlaces
from ternmq.wire.numbers import Command

LOOK_AGAIN_S = 0.2
WAITING, CANCELLED, DELETED, UNKNOWN = "waiting", "cancelled", "deleted", "unknown"


class Span(NamedTuple):
    """Neighbouring messages of one topic in one broker group."""

    topic: str
    broker_group: str
    first: int
    end: int


def delayed_rows(receipt: Receipt | BatchReceipt) -> list[Receipt]:
    """The messages of it that were sent for later."""
    if isinstance(receipt, Receipt):
        return [receipt] if receipt.due_at_ms is not None else []
    return [
        Receipt(published, row)
        for published, first, count in receipt.parts()
        if published.due is not None
        for row in range(first, first + count)
    ]


async def place_of(cluster: Cluster, receipt: Receipt, until: float, clock: Clock) -> Span | str:
    """The message in its broker, as soon as it is there; or why it is not there in time."""
    loop = asyncio.get_running_loop()
    while True:
        left = until - loop.time()
        try:
            state, due_ms = await _at_delay_server(cluster, receipt)
            if state in (CANCELLED, DELETED):
                return state
            if state != WAITING:
                found = await _in_brokers(cluster, receipt)
                if found is not None:
                    return found
            elif due_ms > clock.now_ms() + left * 1000:
                return WAITING  # It will not come in time, however long one looks.
        except TernError as error:
            if not error.retryable or left <= 0:
                raise
            state = UNKNOWN
        if left <= 0:
            return state
        await asyncio.sleep(min(LOOK_AGAIN_S, left))


async def _at_delay_server(cluster: Cluster, receipt: Receipt) -> tuple[str, int]:
    """What it says, and when the message is due; what it has forgotten is in a broker, or was."""
    find = DelayFind(
        topic=receipt.topic, id=receipt.id_bytes, from_ms=receipt.due_at_ms or 0, decided=True
    )
    link = cluster.server(receipt.broker_group, "delay")
    rows = (await cluster.ask(link, Command.DELAY_FIND, find, DelayRows)).rows
    states = {row.state: row.due_at_ms for row in rows}
    for state in ("pending", "dispatching", "unreadable"):
        if state in states:
            return WAITING, states[state]
    return next((state for state in (CANCELLED, DELETED) if state in states), UNKNOWN), 0


async def _in_brokers(cluster: Cluster, receipt: Receipt) -> Span | None:
    """The last of this id: a dispatch that had to be repeated may have stored it twice."""
    find = Find(topic=receipt.topic, id=receipt.id_bytes)
    for group in await cluster.some_masters():
        answer = await cluster.ask(cluster.broker(group), Command.FIND, find, FoundPlaces)
        for place in answer.places:
            return Span(place.topic, group, place.sequence, place.sequence + 1)
    return None
