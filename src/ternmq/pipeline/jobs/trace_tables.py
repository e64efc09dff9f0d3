"""What happened to messages, as tables: latency, throughput, backlog, attempts, doubles, the audit.

Transformations of two data frames, the messages and the delivery events of a time, whether
they come from an archive or from the cluster itself (P4, R23). Only a group's own sequence counts
here; what was replayed into its private lane is left out.

The audit asks which stored messages a group has not settled: by the last event of each message
after the group's last reset. It counts exactly what the ledger calls ready, in flight and waiting.
"""

from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

PLACE = ["topic", "broker_group"]
GROUP = [*PLACE, "group"]
ROW = [*GROUP, "sequence"]
SETTLED = ("acked", "confirm", "dead", "skipped", "filtered", "expired")
HANDED, ACKED = "handed_out", ("acked", "confirm")
PERCENTILES = (0.5, 0.9, 0.99, 0.999)
SHARES = {0.5: "p50", 0.9: "p90", 0.99: "p99", 0.999: "p999"}


@dataclass(frozen=True, slots=True)
class Traces:
    """The inputs of every table."""

    messages: DataFrame
    """id, topic, broker_group, sequence, born_at, stored_at, size."""
    deliveries: DataFrame
    """As `stream=deliveries` gives them."""

    @property
    def events(self) -> DataFrame:
        return self.deliveries.where("lane = 'topic'")


def journeys(traces: Traces) -> DataFrame:
    """One row for each message and group that was handed it: when, how often, what became of it."""
    events = traces.events.where(~f.col("event").isin("made", "reset"))
    steps = events.groupBy(*ROW).agg(
        f.min(f.when(f.col("event") == HANDED, f.col("at"))).alias("handed_at"),
        f.min(f.when(f.col("event").isin(*ACKED), f.col("at"))).alias("acked_at"),
        f.count(f.when(f.col("event") == HANDED, True)).alias("handed"),
        f.count(f.when(f.col("event").isin(*ACKED), True)).alias("acks"),
        f.count(f.when(f.col("event") == "dead", True)).alias("dead"),
        f.max("attempt").alias("attempts"),
    )
    return steps.join(traces.messages, [*PLACE, "sequence"])


def latency(journeys: DataFrame) -> DataFrame:
    """Milliseconds between the steps, per topic and group, as percentiles."""
    steps = {
        "send": ("born_at", "stored_at"),
        "wait": ("stored_at", "handed_at"),
        "handle": ("handed_at", "acked_at"),
        "total": ("born_at", "acked_at"),
    }
    columns = []
    for step, (begin, end) in steps.items():
        spent = (f.unix_micros(f.col(end)) - f.unix_micros(f.col(begin))) / 1000
        shares = f.percentile_approx(spent, list(PERCENTILES), 10_000)
        columns += [
            shares[at].alias(f"{step}_{SHARES[share]}_ms") for at, share in enumerate(PERCENTILES)
        ]
    counted = [
        f.count("*").alias("messages"),
        f.count("acked_at").alias("acked"),
        f.sum(f.greatest(f.col("handed") - 1, f.lit(0))).alias("again"),
        f.sum("dead").alias("dead"),
        f.max("attempts").alias("attempts_max"),
    ]
    return journeys.groupBy("topic", "group").agg(*counted, *columns).orderBy("topic", "group")


def throughput(traces: Traces) -> DataFrame:
    """Stored messages and bytes, per topic and minute."""
    minute = f.date_trunc("minute", "stored_at").alias("minute")
    return (
        traces.messages.groupBy("topic", minute)
        .agg(f.count("*").alias("messages"), f.sum("size").alias("bytes"))
        .orderBy("topic", "minute")
    )


def backlog(traces: Traces) -> DataFrame:
    """Stored and not settled, per topic, group and minute: what came minus what was settled."""
    groups = traces.events.select(*GROUP).distinct()
    starts = _starts(traces)
    minute = f.date_trunc("minute", "at").alias("minute")
    came = (
        traces.messages.withColumnRenamed("stored_at", "at")
        .join(groups, PLACE)
        .join(starts, GROUP, "left")
        .where("sequence >= coalesce(start, 0)")
        .select("topic", "group", minute, f.lit(1).alias("change"))
    )
    settled = (
        traces.events.where(f.col("event").isin(*SETTLED))
        .groupBy(*ROW)
        .agg(f.min("at").alias("at"))
        .select("topic", "group", minute, f.lit(-1).alias("change"))
    )
    changes = (
        came.unionByName(settled)
        .groupBy("topic", "group", "minute")
        .agg(f.sum("change").alias("change"))
    )
    until = Window.partitionBy("topic", "group").orderBy("minute")
    return changes.select(
        "topic", "group", "minute", f.sum("change").over(until).alias("backlog")
    ).orderBy("topic", "group", "minute")


def attempts(journeys: DataFrame) -> DataFrame:
    """How many messages were handed out how often."""
    return (
        journeys.groupBy("topic", "group", "handed").agg(f.count("*").alias("messages"))
    ).orderBy("topic", "group", "handed")


def doubles(traces: Traces) -> DataFrame:
    """Ids that are stored more than once: a producer sent again what was not recognised."""
    return (
        traces.messages.groupBy("topic", "id")
        .agg(f.count("*").alias("copies"), f.collect_list("sequence").alias("sequences"))
        .where("copies > 1")
        .orderBy("topic", "id")
    )


def unsettled(traces: Traces) -> DataFrame:
    """Every stored message that a group has not settled: the audit."""
    starts = _starts(traces)
    events = traces.events.join(starts, GROUP)
    valid = events.where("event not in ('made', 'reset') and position > since")
    last = valid.groupBy(*ROW).agg(
        f.max_by("event", "position").alias("last_event"), f.max("attempt").alias("attempts")
    )
    expected = traces.messages.join(starts, PLACE).where("sequence >= start")
    return (
        expected.join(last, ROW, "left")
        .where(f.col("last_event").isNull() | ~f.col("last_event").isin(*SETTLED))
        .select(*ROW, "id", "stored_at", "last_event", "attempts")
    )


def audit(traces: Traces, older_than_s: int = 0) -> DataFrame:
    """Counts of `unsettled` per topic and group; with an age, only what is older."""
    found = unsettled(traces)
    if older_than_s:
        found = found.where(
            f"stored_at < current_timestamp() - make_interval(0,0,0,0,0,0,{older_than_s})"
        )
    counted = found.groupBy("topic", "group").agg(
        f.count("*").alias("never_acked"),
        f.min("stored_at").alias("oldest"),
        f.slice(f.sort_array(f.collect_list("id")), 1, 10).alias("some_ids"),
    )
    groups = traces.events.select("topic", "group").distinct()
    return (
        groups.join(counted, ["topic", "group"], "left")
        .na.fill({"never_acked": 0})
        .orderBy("topic", "group")
    )


def _starts(traces: Traces) -> DataFrame:
    """Where each group goes on since it was made or last reset, and the place of that record."""
    places = traces.events.where("event in ('made', 'reset')")
    known = places.groupBy(*GROUP).agg(
        f.max_by("sequence", "position").alias("start"), f.max("position").alias("since")
    )
    # A group older than the records: everything it was handed counts.
    seen = traces.events.groupBy(*GROUP).agg(f.min("sequence").alias("seen"))
    return seen.join(known, GROUP, "left").select(
        *GROUP,
        f.coalesce("start", "seen").alias("start"),
        f.coalesce("since", f.lit(-1)).alias("since"),
    )
