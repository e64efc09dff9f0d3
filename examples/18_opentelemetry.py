"""Follow a message from its send to its handler with OpenTelemetry.

    pip install 'ternmq[otel]' opentelemetry-sdk
    python examples/18_opentelemetry.py

Shows: `TernInstrumentor`, the spans of a send and of a handler, the link between them.
"""

import asyncio
import os

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ternmq
from ternmq.otel.instrumentor import TernInstrumentor

URL = os.environ.get("TERN_URL", "tern://127.0.0.1:7700")
TOPIC = "example.traced"


async def main() -> None:
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    TernInstrumentor().instrument(tracer_provider=provider)

    app = ternmq.App(URL, app="billing")
    handled = asyncio.Event()

    @app.subscriber(TOPIC, group="billing")
    async def bill(message: ternmq.Message) -> None:
        print(f"billed  {message.body.decode()}")
        handled.set()

    async with ternmq.connect(URL, app="shop") as mq:
        await mq.send(TOPIC, b"order 1")
        await app.start()
        await handled.wait()
        await app.stop()
        await mq.admin.delete_topic(TOPIC)

    found = {span.name: span for span in spans.get_finished_spans()}
    send, process = found[f"send {TOPIC}"], found[f"process {TOPIC}"]
    print(f"spans   {', '.join(sorted(found))}")
    print(f"linked  {process.links[0].context.span_id == send.context.span_id}")


if __name__ == "__main__":
    asyncio.run(main())
