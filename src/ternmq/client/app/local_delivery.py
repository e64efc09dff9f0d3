"""`app.deliver(value)`: a handler called with a real message, without a node, for tests of
handlers.

The value becomes a message as sending and pulling would make it (codec, key, properties), goes
through the subscriber's middlewares, parameters and rules, and the verdict is returned instead of
told to a broker. What `publish=` would send is returned, too. There is no client: a handler that
asks for `app.mq` needs a node (`ternmq.testing.node`).
"""

import asyncio
from collections.abc import Generator
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, Literal

from ternmq.batch.encoder import Origin, encode_messages
from ternmq.batch.envelope import Envelope
from ternmq.batch.view import BatchView
from ternmq.client.app.handler_pool import make_pool
from ternmq.client.app.handler_run import HandlerRun, Unit
from ternmq.client.app.subscriber import Subscriber
from ternmq.client.codecs.codec import Codec, Json
from ternmq.client.model.delivery import ACK, Delivery, Outcome, SettleReceipt
from ternmq.client.model.durations import typed
from ternmq.client.model.message import Message, MessageBatch
from ternmq.client.model.outgoing import SendOptions, make_body, make_outgoing
from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadRequest
from ternmq.core.ids import new_producer_id

ATTEMPTS_MAX = 65_535


@dataclass(frozen=True, slots=True)
class LocalDelivery:
    """What a handler did with a message that was delivered to it alone."""

    verdict: Literal["ack", "retry", "reject", "back"]
    """Of the first message that was not acked, in a batch."""
    reason: str = ""
    error: Exception | None = None
    """What the handler raised."""
    after: float | None = None
    """Seconds until it would come again; None: by the group's policy."""
    result: Any = None
    """What the handler returned."""
    published: list[Any] = field(default_factory=list)
    """What would have been sent to the topic of `publish=`."""


class _NothingToTell:
    """The receipt of a verdict that nobody has to be told."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


class _Verdicts:
    """Stands where the consumer does: remembers the first outcome of every row."""

    def __init__(self) -> None:
        self.thread = get_ident()
        self.flushing: SettleReceipt = _NothingToTell()
        self.outcomes: dict[int, Outcome] = {}

    def acked(self, delivery: Delivery, row: int) -> SettleReceipt:
        return self.settle(delivery, (row, row + 1), ACK)

    def started(self, delivery: Delivery) -> None:
        """Nothing waits for it."""

    def settle(self, delivery: Delivery, rows: tuple[int, int], outcome: Outcome) -> SettleReceipt:
        for row in range(*rows):
            if not delivery.settled[row]:
                delivery.settled[row] = 1
                self.outcomes[row] = outcome
        return self.flushing

    settle_later = settle  # Of a thread: nothing here belongs to the loop.


async def deliver_locally(
    subscriber: Subscriber,
    value: Any,
    *,
    topic: str,
    codec: Codec | None,
    attempt: int,
    options: SendOptions,
) -> LocalDelivery:
    """Run one message (of a batch subscriber: a list of them) through a handler."""
    if isinstance(attempt, bool) or not isinstance(attempt, int) or not 0 < attempt <= ATTEMPTS_MAX:
        raise BadRequest(f"attempt is {typed(attempt)}; it is a number from 1 to {ATTEMPTS_MAX}")
    if subscriber.batch_size and not (isinstance(value, list | tuple) and value):
        raise BadRequest(f"{subscriber.name} takes batches: deliver a list of values to it")
    values = list(value) if subscriber.batch_size else [value]
    verdicts = _Verdicts()
    delivery = Delivery(_envelope(topic, values, codec, attempt, options), verdicts, codec)
    unit: Unit = Message(delivery, 0)
    if subscriber.batch_size:
        unit = MessageBatch([(delivery, 0, len(values))])
    published: list[Any] = []

    async def publish(result: Any) -> None:
        published.append(result)

    pool = make_pool(subscriber)
    try:
        run = HandlerRun(subscriber, pool, publish if subscriber.publish else None)
        end = await run.run(unit)
        run.settle(unit, end)
        await asyncio.sleep(0)  # What a thread settled is told by the loop.
    finally:
        pool.close()
    outcome = _worst(verdicts.outcomes)
    after = outcome.after_ms / 1000 if outcome.kind == "retry" and outcome.after_ms >= 0 else None
    return LocalDelivery(outcome.kind, outcome.reason, end.error, after, end.result, published)


def _envelope(
    topic: str, values: list[Any], codec: Codec | None, attempt: int, options: SendOptions
) -> Envelope:
    now_ms = SystemClock().now_ms()
    messages = [make_outgoing(_body(value, codec), options, now_ms) for value in values]
    origin = Origin(topic=topic, app="test", producer=new_producer_id(now_ms))
    view = BatchView(encode_messages(messages, origin=origin, first_sequence=0))
    count = len(values)
    return Envelope(0, 0, view, [(0, count)], [attempt] * count if attempt > 1 else [], whole=True)


def _body(value: Any, codec: Codec | None) -> bytes:
    """Without a codec, what is no text or bytes becomes JSON: so are typed bodies read."""
    if codec is None and not isinstance(value, bytes | str):
        return Json().encode(value)
    return make_body(value.encode() if codec is None and isinstance(value, str) else value, codec)


def _worst(outcomes: dict[int, Outcome]) -> Outcome:
    for row in sorted(outcomes):
        if outcomes[row].kind != "ack":
            return outcomes[row]
    return ACK
