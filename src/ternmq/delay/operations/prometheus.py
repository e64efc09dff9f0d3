"""The figures of a delay server for Prometheus, computed on each scrape."""

from ternmq.delay.timing.engine import Engine
from ternmq.metrics.histogram import Histogram
from ternmq.metrics.samples import Samples
from ternmq.metrics.table import OTHER, TOPICS_MAX


def delay_figures(out: Samples, engine: Engine, lateness: Histogram, clock_jumps: int) -> None:
    """The ledger by topic, what is due, how late messages reached their brokers, the clock."""
    for number, (topic_id, line) in enumerate(engine.ledger().items()):
        topic = engine.store.names.get(topic_id) or f"%unknown.{topic_id}"
        label = topic if number < TOPICS_MAX else OTHER
        out.add("tern_delay_messages", line.pending, label, "pending")
        out.add("tern_delay_messages", line.dispatched, label, "dispatched")
        out.add("tern_delay_messages", line.cancelled, label, "cancelled")
    out.add("tern_delay_due_messages", engine.ready.rows)
    out.add("tern_delay_late_messages", engine.ready.late_rows)
    out.add("tern_delay_unreadable_messages", engine.aside)
    out.histogram("tern_delay_lateness_seconds", lateness)
    out.add("tern_delay_clock_jumps_total", clock_jumps)
