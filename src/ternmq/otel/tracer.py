"""Spans and metrics of one client process: one send span per call, one receive span per arrival.

A send span's context goes into every message of its call (column TRACE) if it is sampled, else
nothing does. A receive span links to the distinct contexts of what came, at most 128; a process
span runs around a handler where a message has a context, linked to it, or as its child (`parent`).
Needs the API package only: without an SDK nothing is recorded, and messages get no context.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from opentelemetry import context, metrics, trace
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from ternmq.client.model.delivery import Delivery
from ternmq.client.model.message import Message, MessageBatch
from ternmq.core.process import VERSION
from ternmq.otel import names


def text_of(found: SpanContext) -> str | None:
    """As a message has it; None where nobody records."""
    if not found.is_valid or not found.trace_flags.sampled:
        return None
    text = f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"
    state = found.trace_state.to_header()
    return f"{text};{state}" if state and len(state) <= 512 and state.isascii() else text


def context_of(text: str) -> SpanContext:
    """Of a message that has one."""
    parent, _, state = text.partition(";")
    _, trace_id, span_id, flags = parent.split("-")
    return SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, 16)),
        trace_state=TraceState.from_header([state]) if state else TraceState(),
    )


class OtelTracer:
    """What `ternmq.client` tells of its work, as spans and metrics."""

    def __init__(
        self, tracer_provider: Any = None, meter_provider: Any = None, *, parent: bool = False
    ) -> None:
        self._tracer = trace.get_tracer("ternmq", VERSION, tracer_provider)
        meter = metrics.get_meter("ternmq", VERSION, meter_provider)
        self._parent = parent
        self._sent = meter.create_counter(names.SENT, "{message}", "Messages sent.")
        self._consumed = meter.create_counter(names.CONSUMED, "{message}", "Messages received.")
        self._operation = _histogram(meter, names.OPERATION_SECONDS, "A call of the client.")
        self._process = _histogram(meter, names.PROCESS_SECONDS, "A handler.")

    @contextmanager
    def sending(self, topic: str, count: int) -> Iterator[str | None]:
        attributes = _attributes("send", "send", topic)
        began = perf_counter()
        span = self._tracer.start_span(
            f"send {topic}",
            kind=SpanKind.PRODUCER,
            attributes=attributes if count == 1 else attributes | {names.COUNT: count},
        )
        with trace.use_span(span, end_on_exit=True, record_exception=False):
            try:
                yield text_of(span.get_span_context())
            except BaseException as error:
                attributes[names.ERROR] = type(error).__name__
                _failed(span, error)
                raise
            finally:
                self._sent.add(count, attributes)
                self._operation.record(perf_counter() - began, attributes)

    @contextmanager
    def ending(self, action: str, count: int) -> Iterator[None]:
        attributes = {names.SYSTEM: names.SYSTEM_NAME, names.OPERATION: action}
        began = perf_counter()
        span = self._tracer.start_span(
            f"{action} transaction",
            kind=SpanKind.CLIENT,
            attributes=attributes | {names.COUNT: count},
        )
        with trace.use_span(span, end_on_exit=True, record_exception=False):
            try:
                yield
            except BaseException as error:
                attributes[names.ERROR] = type(error).__name__
                _failed(span, error)
                raise
            finally:
                self._operation.record(perf_counter() - began, attributes)

    def received(self, group: str, deliveries: Sequence[Delivery]) -> None:
        by_topic: dict[str, list[Delivery]] = {}
        for delivery in deliveries:
            by_topic.setdefault(delivery.topic, []).append(delivery)
        for topic, some in by_topic.items():
            count = sum(delivery.remaining for delivery in some)
            attributes = _attributes("receive", "receive", topic) | {names.GROUP: group}
            self._consumed.add(count, attributes)
            links = _links({text for each in some for text in each.batch.traces()})
            self._tracer.start_span(
                f"receive {topic}",
                kind=SpanKind.CLIENT,
                links=links,
                attributes=attributes
                | {names.COUNT: count, names.BROKER_GROUP: some[0].broker_group},
            ).end()

    @contextmanager
    def handling(self, group: str, unit: Message | MessageBatch) -> Iterator[None]:
        messages = [unit] if isinstance(unit, Message) else unit
        topic = messages[0].topic
        attributes = _attributes("process", "process", topic) | {names.GROUP: group}
        began = perf_counter()
        contexts = {message.trace for message in messages} - {None}
        try:
            if contexts:
                with self._process_span(unit, attributes, _links(contexts)):
                    yield
            else:
                yield
        except BaseException as error:
            attributes[names.ERROR] = type(error).__name__
            raise
        finally:
            self._process.record(perf_counter() - began, attributes)

    @contextmanager
    def _process_span(
        self, unit: Message | MessageBatch, attributes: dict[str, Any], links: list[Link]
    ) -> Iterator[None]:
        single = isinstance(unit, Message)
        more: dict[str, Any] = (
            {names.MESSAGE_ID: unit.id, names.ATTEMPT: unit.attempt}
            if isinstance(unit, Message)
            else {names.COUNT: len(unit)}
        )
        creation = context.Context()
        if self._parent and single:
            creation = trace.set_span_in_context(NonRecordingSpan(links[0].context), creation)
            links = []
        span = self._tracer.start_span(
            f"process {attributes[names.DESTINATION]}",
            creation,
            kind=SpanKind.CONSUMER,
            links=links,
            attributes=attributes | more,
        )
        with trace.use_span(span, end_on_exit=True, record_exception=False):
            try:
                yield
            except BaseException as error:
                _failed(span, error)
                raise


def _histogram(meter: metrics.Meter, name: str, text: str) -> metrics.Histogram:
    return meter.create_histogram(
        name, "s", text, explicit_bucket_boundaries_advisory=names.BUCKETS
    )


def _failed(span: trace.Span, error: BaseException) -> None:
    if span.is_recording():
        span.set_attribute(names.ERROR, type(error).__name__)
        span.set_status(Status(StatusCode.ERROR, str(error)[:200]))
        span.record_exception(error)


def _attributes(operation: str, kind: str, topic: str) -> dict[str, Any]:
    return {
        names.SYSTEM: names.SYSTEM_NAME,
        names.OPERATION: operation,
        names.OPERATION_TYPE: kind,
        names.DESTINATION: topic,
    }


def _links(contexts: set[str | None] | set[str]) -> list[Link]:
    some = sorted(text for text in contexts if text is not None)[: names.LINKS_MAX]
    return [Link(context_of(text)) for text in some]
