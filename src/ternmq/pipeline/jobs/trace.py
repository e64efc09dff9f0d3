"""The trace job: where its rows come from, and where its tables go (P4, R23).

From an archive (closed days, any amount) or straight from the cluster (what it still holds). Tables
are written as Parquet, one folder each, and as one HTML page.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ternmq.core.errors import BadRequest
from ternmq.pipeline.archive.log import DELIVERIES, MESSAGES
from ternmq.pipeline.archive.reader import archived_rows
from ternmq.pipeline.archive.store import ArchiveStore
from ternmq.pipeline.jobs import trace_report, trace_tables
from ternmq.pipeline.jobs.trace_tables import Traces

ROWS_SHOWN_MAX = 10_000
COLUMNS = ["id", "topic", "broker_group", "sequence", "born_at", "stored_at", "size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """What to look at: an archive, or else the cluster."""

    url: str = ""
    archive: str = ""
    topics: tuple[str, ...] = ()
    from_ms: int = 0
    to_ms: int = 2**62
    older_than_s: int = 0


def load(spark: SparkSession, job: TraceJob) -> Traces:
    """The rows that the job is about."""
    traces = _archived(spark, job) if job.archive else _live(spark, job)
    messages, deliveries = traces.messages.select(*COLUMNS), traces.deliveries
    if job.topics:
        messages = messages.where(messages["topic"].isin(*job.topics))
        deliveries = deliveries.where(deliveries["topic"].isin(*job.topics))
    if job.from_ms:
        messages = messages.where(f"stored_at >= timestamp_millis({job.from_ms})")
    if job.to_ms < 2**62:
        messages = messages.where(f"stored_at < timestamp_millis({job.to_ms})")
    return Traces(messages.cache(), deliveries.cache())


def trace(spark: SparkSession, job: TraceJob) -> dict[str, list[dict[str, Any]]]:
    """Every table, as rows."""
    traces = load(spark, job)
    journeys = trace_tables.journeys(traces).cache()
    frames: dict[str, DataFrame] = {
        "audit": trace_tables.audit(traces, job.older_than_s),
        "latency": trace_tables.latency(journeys),
        "throughput": trace_tables.throughput(traces),
        "backlog": trace_tables.backlog(traces),
        "attempts": trace_tables.attempts(journeys),
        "doubles": trace_tables.doubles(traces),
    }
    try:
        return {
            # Through Arrow, whose times know that they are UTC; collected ones are local time.
            name: frame.limit(ROWS_SHOWN_MAX).toArrow().to_pylist()
            for name, frame in frames.items()
        }
    finally:
        for frame in (journeys, traces.messages, traces.deliveries):
            frame.unpersist()


def write(
    spark: SparkSession, tables: dict[str, list[dict[str, Any]]], folder: Path, subtitle: str
) -> Path:
    """Parquet for programs, HTML for people; returns the page's path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadRequest(f"cannot write to {folder}: {error.strerror}") from error
    for name, rows in tables.items():
        if rows:
            pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
    path = folder / "trace_report.html"
    made = f"{subtitle}; made {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    path.write_text(trace_report.page("TernMQ trace", made, tables), encoding="utf-8")
    return path


def as_json(tables: dict[str, list[dict[str, Any]]]) -> str:
    return json.dumps(tables, default=str, indent=2)


def _live(spark: SparkSession, job: TraceJob) -> Traces:
    reader = spark.read.format("tern").option("url", job.url)
    wanted = {"subscribe": ",".join(job.topics)} if job.topics else {"subscribePattern": ".*"}
    messages = reader.options(includeProperties="false", **wanted).schema(
        "id string, topic string, broker_group string, sequence long, born_at timestamp, "
        "stored_at timestamp, size int"
    )
    deliveries = spark.read.format("tern").options(url=job.url, stream="deliveries")
    return Traces(messages.load(), deliveries.load())


def _archived(spark: SparkSession, job: TraceJob) -> Traces:
    store = ArchiveStore(job.archive)
    store.check()
    state = store.load()
    frames: dict[str, DataFrame] = {}
    for kind in (MESSAGES, DELIVERIES):
        files = [file for file in state.files.values() if file.kind == kind]
        if not files:
            raise BadRequest(f"{job.archive} holds no {kind} yet")
        frames[kind] = archived_rows(spark, store, files)
    return Traces(frames[MESSAGES], frames[DELIVERIES])
