"""The trace while messages come: counts and latencies for each minute, topic and group (P4).

Two streams, the stored messages and the acks, are joined by their place in the sequence and summed
up in windows of a minute. Latencies are kept as KLL sketches, so that minutes merge into hours and
days without the rows. A minute is told once, when `late` has passed after it: what is acked later
than that is not in here; the audit over the archive is exact.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

PLACE = ["topic", "broker_group", "sequence"]
LATE = "2 minutes"
STORED = "topic string, broker_group string, sequence long, born_at timestamp, stored_at timestamp"
OnRows = Callable[[list[dict[str, Any]]], None]


def minutes(stored: DataFrame, deliveries: DataFrame, late: str = LATE) -> DataFrame:
    """One row for each minute, topic and group: acked messages, and how long they took."""
    messages = stored.withWatermark("stored_at", late)
    acks = (
        deliveries.where("lane = 'topic' and event in ('acked', 'confirm')")
        .select(*PLACE, "group", "at")
        .withWatermark("at", late)
    )
    joined = messages.join(
        acks.select(*[f.col(name).alias(f"ack_{name}") for name in PLACE], "group", "at"),
        f.expr(
            "topic = ack_topic and broker_group = ack_broker_group and sequence = ack_sequence "
            f"and at >= stored_at - interval 1 minute and at <= stored_at + interval {late}"
        ),
    )
    spent = (f.unix_micros("at") - f.unix_micros("born_at")) / 1000.0
    return joined.groupBy(f.window("stored_at", "1 minute"), "topic", "group").agg(
        f.count("*").alias("acked"),
        f.kll_sketch_agg_double(spent.cast("double")).alias("sketch"),
    )


def shown(rows: DataFrame) -> DataFrame:
    """The sketches read: percentiles in milliseconds."""

    def share(part: float) -> Any:
        return f.kll_sketch_get_quantile_double("sketch", f.lit(part))

    return rows.select(
        f.col("window.start").alias("minute"),
        "topic",
        "group",
        "acked",
        share(0.5).alias("p50_ms"),
        share(0.99).alias("p99_ms"),
        "sketch",
    )


def follow(
    spark: SparkSession,
    url: str,
    checkpoint: Path,
    *,
    on_rows: OnRows,
    out: Path | None = None,
    late: str = LATE,
    start: str = "latest",
) -> StreamingQuery:
    """Start the query; every finished minute is told, and kept as Parquet in `out`."""
    reader = spark.readStream.format("tern").options(url=url, startingOffsets=start)
    stored = reader.options(subscribePattern=".*").schema(STORED).load()
    other = spark.readStream.format("tern").options(url=url, startingOffsets=start)
    deliveries = other.options(stream="deliveries").load()

    def tell(batch: DataFrame, number: int) -> None:
        rows = shown(batch)
        if out is not None:  # The same batch again writes the same file again.
            rows.write.mode("overwrite").parquet(str(out / f"minutes-{number:010d}"))
        found = rows.drop("sketch").orderBy("minute", "topic", "group").toArrow().to_pylist()
        if found:
            on_rows(found)

    writer = minutes(stored, deliveries, late).writeStream.outputMode("append")
    return writer.option("checkpointLocation", str(checkpoint)).foreachBatch(tell).start()
