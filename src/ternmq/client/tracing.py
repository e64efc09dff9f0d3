"""The hook for tracing in a client: spans around sends and handlers, if a tracer is set.

Nobody does unless `ternmq.otel` is switched on: then every call asks `TRACING.tracer` once, never
for single messages of a list. Knows nothing of OpenTelemetry.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Protocol

from ternmq.batch.encoder import Outgoing
from ternmq.client.model.delivery import Delivery
from ternmq.client.model.message import Message, MessageBatch
from ternmq.client.model.outgoing import SendOptions


class ClientTracer(Protocol):
    """What is told of sends, arrivals and handlers."""

    def sending(self, topic: str, count: int) -> AbstractContextManager[str | None]:
        """Around a call that sends; gives the trace context of its messages, if they have one."""

    def ending(self, action: str, count: int) -> AbstractContextManager[None]:
        """Around the end of a transaction of so many messages."""

    def received(self, group: str, deliveries: Sequence[Delivery]) -> None:
        """Messages came in."""

    def handling(self, group: str, unit: Message | MessageBatch) -> AbstractContextManager[None]:
        """Around a handler."""


class Tracing:
    """The one tracer of the process, or none."""

    __slots__ = ("tracer",)

    def __init__(self) -> None:
        self.tracer: ClientTracer | None = None


TRACING = Tracing()


@contextmanager
def sending_one(tracer: ClientTracer, topic: str, options: SendOptions) -> Iterator[SendOptions]:
    """The options of one message, with its context."""
    with tracer.sending(topic, 1) as trace:
        if trace is not None:
            options.setdefault("trace", trace)
        yield options


@contextmanager
def sending_many(
    tracer: ClientTracer, topic: str, bodies: Sequence[Any], options: SendOptions
) -> Iterator[Sequence[Any]]:
    """The messages of one call, all with the context of that call but those that have their own."""
    with tracer.sending(topic, len(bodies)) as trace:
        if trace is None:
            yield bodies
            return
        if not all(isinstance(body, Outgoing) for body in bodies):
            options.setdefault("trace", trace)
        yield [
            replace(body, trace=body.trace or trace) if isinstance(body, Outgoing) else body
            for body in bodies
        ]


def traced_list(
    topic: str, bodies: Sequence[Any], options: SendOptions
) -> AbstractContextManager[Sequence[Any]]:
    """Around a call that sends a list; the list itself where nobody traces, or it is none."""
    tracer = TRACING.tracer
    if tracer is None or not isinstance(bodies, Sequence) or not bodies:
        return nullcontext(bodies)
    return sending_many(tracer, topic, bodies, options)
