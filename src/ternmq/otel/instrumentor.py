"""Switches OpenTelemetry on and off: by hand, or by `opentelemetry-instrument`, which finds it.

    from ternmq.otel.instrumentor import TernInstrumentor

    TernInstrumentor().instrument()

Holds for all clients of the process, also those that are there already.
"""

from collections.abc import Collection
from typing import Any

from ternmq.client.tracing import TRACING
from ternmq.otel.tracer import OtelTracer


class TernInstrumentor:
    """As OpenTelemetry expects one: found by its entry point, told to instrument."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """Nothing besides ourselves."""
        return ()

    def instrument(
        self,
        *,
        tracer_provider: Any = None,
        meter_provider: Any = None,
        parent: bool = False,
        **others: Any,
    ) -> None:
        """On. `parent`: a handler's span is a child of the send of its message, not linked to it;
        for single messages. Other options of OpenTelemetry are not for us."""
        TRACING.tracer = OtelTracer(tracer_provider, meter_provider, parent=parent)

    def uninstrument(self, **others: Any) -> None:
        """Off."""
        TRACING.tracer = None
