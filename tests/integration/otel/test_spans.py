"""OpenTelemetry with its SDK: spans of sends and handlers, linked over everything in between."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

import ternmq
import ternmq.sync
from ternmq import App, Message, Outgoing, connect
from ternmq.cli.messages.export_line import ExportedMessage, message_line, outgoing, read_line
from ternmq.client.model.stored_message import pack, unpack
from ternmq.core.ids import id_to_text
from ternmq.otel.instrumentor import TernInstrumentor
from ternmq.testing import node
from tests.integration.processes import Node

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Recorded:
    """What the SDK was told."""

    def __init__(self) -> None:
        self.spans = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.meters = MeterProvider([self.reader])

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans.get_finished_spans() if span.name == name]

    def sums(self) -> dict[str, float]:
        data = self.reader.get_metrics_data()
        found: dict[str, float] = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points: list[Any] = list(metric.data.data_points)
                    found[metric.name] = sum(
                        each.count if hasattr(each, "count") else each.value for each in points
                    )
        return found


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    found = Recorded()
    TernInstrumentor().instrument(tracer_provider=found.tracers, meter_provider=found.meters)
    yield found
    TernInstrumentor().uninstrument()


async def handled(url: str, topic: str, count: int) -> list[Message]:
    """So many messages of a topic, each by a handler."""
    app = App(url, app="worker")
    seen: list[Message] = []
    done = asyncio.Event()

    @app.subscriber(topic, group="g")
    async def handle(message: Message) -> None:
        seen.append(message)
        if len(seen) == count:
            done.set()

    await app.start()
    await asyncio.wait_for(done.wait(), 30)
    await app.stop()
    return seen


async def test_a_handlers_span_is_linked_to_the_send_of_its_message(recorded: Recorded) -> None:
    async with node() as url, connect(url) as mq:
        await mq.send("orders", b"one")
        await mq.send_many("orders", [b"two", Outgoing(body=b"three", key="k")])
        seen = await handled(url, "orders", 3)

    one, many = recorded.named("send orders")
    processed = recorded.named("process orders")
    assert (one.kind, processed[0].kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert many.attributes is not None
    assert many.attributes["messaging.batch.message_count"] == 2
    sent = [one.context.span_id, many.context.span_id, many.context.span_id]
    assert [span.links[0].context.span_id for span in processed] == sent
    assert all(span.parent is None for span in processed)
    received = {link.context.span_id for s in recorded.named("receive orders") for link in s.links}
    assert received == set(sent)
    ids = f"{one.context.trace_id:032x}-{one.context.span_id:016x}"
    assert seen[0].trace == f"00-{ids}-{one.context.trace_flags:02x}"
    sums = recorded.sums()
    assert (sums["messaging.client.sent.messages"], sums["messaging.process.duration"]) == (3, 3)
    assert sums["messaging.client.consumed.messages"] == 3


async def test_a_send_that_fails_is_an_error_and_one_that_is_off_leaves_no_trace(
    recorded: Recorded,
) -> None:
    async with node() as url, connect(url) as mq:
        with pytest.raises(ternmq.BadRequest):
            await mq.send("orders", b"x", priority=999)
        TernInstrumentor().uninstrument()
        await mq.send("orders", b"quiet")
        [message] = [each async for each in mq.read("orders")]

    [span] = recorded.named("send orders")
    assert span.attributes is not None and span.attributes["error.type"] == "BadRequest"
    assert message.trace is None


async def test_a_context_survives_delay_half_and_dead_letters() -> None:
    """The option `trace=` alone, without OpenTelemetry."""

    async def check(transaction: str) -> None:
        raise AssertionError("nobody asks")

    async with node() as url, connect(url) as mq:
        await mq.send("orders", b"later", trace=TRACE, delay=0.2)
        mq.transaction_checker(check)  # type: ignore[arg-type]
        async with mq.transaction() as transaction:
            await transaction.send("orders", b"half", trace=TRACE)
        found: list[Message] = []
        async with mq.consumer("orders", group="g") as consumer:
            async for message in consumer:
                found.append(message)
                await message.reject("dead")
                if len(found) == 2:
                    break
        letters = [each async for each in mq.read("%dead.g")]

    assert sorted(each.body for each in found) == [b"half", b"later"]
    assert [each.trace for each in [*found, *letters]] == [TRACE] * 4


def test_a_context_survives_the_outbox() -> None:
    message_id = id_to_text(7)

    assert unpack(pack(Outgoing(body=b"x", trace=TRACE)), message_id).trace == TRACE
    assert unpack(pack(Outgoing(body=b"x")), message_id).trace is None


async def test_a_context_survives_an_export() -> None:
    async with node() as url, connect(url) as mq:
        await mq.send("orders", b"x", trace=TRACE)
        [message] = [each async for each in mq.read("orders")]

    line = read_line(2, message_line(message))
    assert isinstance(line, ExportedMessage)
    assert outgoing(2, line).trace == TRACE


async def test_every_way_to_send_has_a_span_and_a_context(recorded: Recorded) -> None:
    async with node() as url, connect(url) as mq:
        mq.transaction_checker(lambda transaction: "commit")
        mq.send_nowait("orders", b"now")
        mq.send_many_nowait("orders", [b"now", Outgoing(body=b"now")])
        await mq.send_many("orders", [b"unwatched"], wait_for_store=False)
        await mq.flush()
        ids = [b"first", b"second"]
        await mq.send_once("orders", [Outgoing(body=b"once", explicit_id=each) for each in ids])
        async with mq.transaction() as tx:
            await tx.send("orders", b"half")
            await tx.send_many("orders", [b"half", b"half"])
        staged = mq.detached("job", attempt=1)
        await staged.send("orders", b"detached")
        await mq.commit_detached("job", [1])
        found = [message async for message in mq.read("orders", start="earliest", follow=False)]

    assert len(found) == 10
    sends = recorded.named("send orders")
    assert len(sends) == 7, "one for each call"
    contexts = {message.trace for message in found}
    assert len(contexts) == 7 and None not in contexts
    [commit] = recorded.named("commit transaction")
    assert (commit.kind, (commit.attributes or {})["messaging.batch.message_count"]) == (
        SpanKind.CLIENT,
        3,
    )
    assert recorded.sums()["messaging.client.sent.messages"] == 10


async def test_a_transaction_that_cannot_end_is_an_error(recorded: Recorded) -> None:
    async with node() as url, connect(url) as mq:
        mq.transaction_checker(lambda transaction: "commit")
        tx = mq.transaction()
        await tx.send("orders", b"half")
        await mq.admin.end_half(tx.id, "rollback")
        with pytest.raises(ternmq.TernError):
            await tx.commit()

    [commit] = recorded.named("commit transaction")
    assert not commit.status.is_ok


async def test_a_span_made_in_a_thread_is_a_child_of_its_handlers_span(recorded: Recorded) -> None:
    tracer = recorded.tracers.get_tracer("mine")
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with node() as url, connect(url) as mq:
        await mq.send("orders", b"one")
        app = App(url, app="worker")

        @app.subscriber("orders", group="g", pool="threads")
        def handle(message: Message) -> None:
            with tracer.start_as_current_span("work"):
                loop.call_soon_threadsafe(done.set)

        await app.start()
        await asyncio.wait_for(done.wait(), 30)
        await app.stop()

    [process], [work] = recorded.named("process orders"), recorded.named("work")
    assert work.parent is not None and process.context is not None
    assert work.parent.span_id == process.context.span_id


def test_a_blocking_send_is_a_child_of_the_callers_span(
    recorded: Recorded, shared_node: Node
) -> None:
    tracer = recorded.tracers.get_tracer("mine")
    with (
        ternmq.sync.connect(shared_node.url) as mq,
        tracer.start_as_current_span("request") as request,
    ):
        mq.send("blocking.orders", b"one")
        mq.send_nowait("blocking.orders", b"two")

    sends = recorded.named("send blocking.orders")
    assert len(sends) == 2
    for send in sends:
        assert send.parent is not None
        assert send.parent.span_id == request.get_span_context().span_id
