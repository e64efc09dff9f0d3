"""Spark on TernMQ: source, sink, archive, and what a micro-batch costs at least.

One node (`tern up`, flush = sync) and one local[2] session, everything in the same run: each figure
is run once to warm up the JVM and the Python workers, then some times more, and the best of these
counts, since others may share the machine. CPU seconds per million rows are those of JVM, Python
workers and node together; two cores can do no more than 2 / that. Bodies are incompressible. The
micro-batch floor is the median of Spark's own figure for triggers of one row. `find` is the whole
command `tern pipeline find --id`, its start included, in an archive of that many messages. Spark's
own Kafka source reads as many rows in the same session. `python -m benchmarks.spark` runs it alone.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import spark_kafka
from benchmarks.delay import a_node
from benchmarks.peers.process import tree_cpu_seconds
from ternmq.pipeline.archive.job import ArchiveJob, Archiver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Fields = dict[str, Any]
TASKS = "4"
RUNS = 3
SENT_AT_ONCE = 50_000
FEW = "id string, sequence long, body binary"
FIND_IN = 10_000_000
TRIGGERS = 25
TRIGGERS_COLD = 5


def measure(
    count: int, *, full: bool = True, told: Callable[[str], None] = lambda _: None
) -> Fields:
    """All figures, with `count` messages in each topic; `full`: find in ten million."""
    from ternmq.pipeline.spark.session import spark_session

    found: Fields = {"count": count}
    with a_node() as (node, directory):
        url = node.url()
        fill(url, "small", 100, count)
        fill(url, "large", 200, count)
        told(f"two topics of {count:,} messages")
        conf = {"spark.driver.memory": "2g"} | spark_kafka.session_settings()
        spark = spark_session("bench", master="local[2]", conf=conf)
        try:
            figures = {
                "source_few": lambda n: to_noop(spark, url, FEW),
                "source_all": lambda n: to_noop(spark, url, ""),
                "sink": lambda n: to_sink(spark, url, f"copy.{n}"),
                "archive": lambda n: to_archive(spark, url, directory / f"archive.{n}"),
            }
            for name, run in figures.items():
                found[name] = repeated(run, count)
                told(f"{name}: {found[name]}")
            found["copied"] = count_of(url, "copy.0")
            found["trigger"] = micro_batches(spark, url)
            told(f"trigger: {found['trigger']}")
            found["kafka"] = kafka_source(spark, count)
            told(f"kafka: {found['kafka']}")
            found["find"] = find_one(spark, url, directory / "many", FIND_IN if full else count)
            told(f"find: {found['find']}")
        finally:
            spark.stop()
    assert found["copied"] == count, "the sink lost or doubled messages"
    return found


def repeated(run: Callable[[int], None], count: int) -> Fields:
    """Once cold, then warm; with the CPU of everything: JVM, workers, node."""
    rates, costs = [], []
    for number in range(1 + RUNS):
        began, spent = time.perf_counter(), tree_cpu_seconds([os.getpid()])
        run(number)
        rates.append(round(count / (time.perf_counter() - began)))
        costs.append((tree_cpu_seconds([os.getpid()]) - spent) / count * 1e6)
    return {
        "rate": max(rates[1:]),
        "cold": rates[0],
        "runs": rates[1:],
        "cpu_s_per_million": round(min(costs[1:]), 2),
    }


def fill(url: str, topic: str, size: int, count: int) -> None:
    from ternmq.sync import connect

    bodies = [secrets.token_bytes(size) for _ in range(SENT_AT_ONCE)]
    with connect(url, app="bench", delivery_timeout=600) as mq:
        for first in range(0, count, SENT_AT_ONCE):
            mq.send_many(topic, bodies[: min(SENT_AT_ONCE, count - first)])


def count_of(url: str, topic: str) -> int:
    from ternmq.pipeline.cluster import cluster
    from ternmq.pipeline.positions import TopicPlace

    bounds = [
        cluster(url).bounds(TopicPlace(topic, group)) for group in cluster(url).broker_groups()
    ]
    return sum(found.end - found.first for found in bounds if found is not None)


def _source(spark: SparkSession, url: str, schema: str) -> Any:
    reader = spark.read.format("tern").options(url=url, subscribe="small", minPartitions=TASKS)
    return (reader.schema(schema) if schema else reader).load()


def to_noop(spark: SparkSession, url: str, schema: str) -> None:
    _source(spark, url, schema).write.format("noop").mode("overwrite").save()


def to_sink(spark: SparkSession, url: str, topic: str) -> None:
    frame = _source(spark, url, "body binary")
    frame.write.format("tern").options(url=url, topic=topic).mode("append").save()


def to_archive(spark: SparkSession, url: str, target: Path) -> None:
    job = ArchiveJob(url=url, target=str(target), topics=("large",), deliveries=False)
    Archiver(spark, job).run_once(lambda _: None)


def micro_batches(spark: SparkSession, url: str) -> Fields:
    """Triggers of one row each, source to noop."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as checkpoint:
        stream = spark.readStream.format("tern").options(
            url=url, subscribe="small", startingOffsets="earliest", maxOffsetsPerTrigger="1"
        )
        query = (
            stream.schema(FEW)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .start()
        )
        try:
            while len(progress := query.recentProgress) < TRIGGERS_COLD + TRIGGERS:
                assert query.isActive, query.exception()
                time.sleep(0.1)
        finally:
            query.stop()
    warm = [one["durationMs"]["triggerExecution"] for one in progress[TRIGGERS_COLD:]]
    return {"p50_ms": statistics.median(warm), "max_ms": max(warm), "triggers": len(warm)}


def kafka_source(spark: SparkSession, count: int) -> Fields:
    """Spark's own, of the same size; or why not."""
    if (why := spark_kafka.missing()) is not None:
        return {"left_out": why}
    with spark_kafka.filled(count, 100, int(TASKS)) as address:
        return repeated(lambda _: spark_kafka.to_noop(spark, address), count)


def find_one(spark: SparkSession, url: str, target: Path, count: int) -> Fields:
    """One message by its id, by the command; `inside`: without the start of Python."""
    from ternmq.pipeline.archive.search import ArchiveSearch, SearchTerms
    from ternmq.sync import connect

    fill(url, "many", 100, count // 2)
    with connect(url, app="bench") as mq:
        wanted = mq.send("many", b"this one", key="wanted").id
    fill(url, "many", 100, count - count // 2)
    job = ArchiveJob(url=url, target=str(target), topics=("many",), deliveries=False)
    Archiver(spark, job).run_once(lambda _: None)
    command = [
        sys.executable,
        "-m",
        "ternmq.cli.main",
        "pipeline",
        "find",
        "--archive",
        str(target),
        "--id",
        wanted,
        "--json",
    ]
    whole, inside = [], []
    for _ in range(1 + RUNS):
        began = time.perf_counter()
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        whole.append(time.perf_counter() - began)
        began = time.perf_counter()
        [row] = ArchiveSearch(str(target)).messages(SearchTerms(id=wanted))
        inside.append(time.perf_counter() - began)
        assert row["id"] == wanted and wanted in said
    return {
        "messages": count,
        "command_s": round(min(whole[1:]), 3),
        "cold_s": round(whole[0], 3),
        "inside_s": round(min(inside[1:]), 3),
    }


def targets(found: Fields) -> list[tuple[str, float, float, str]]:
    """Name, measured, target, and on which side of it."""
    ours = found["source_few"]["rate"]
    return [
        ("spark source: id, sequence, body rows/s", found["source_few"]["rate"], 1e6, "at least"),
        ("spark source: all columns rows/s", found["source_all"]["rate"], 600_000, "at least"),
        ("spark source to sink rows/s", found["sink"]["rate"], 300_000, "at least"),
        ("spark archive, 200 bytes, rows/s", found["archive"]["rate"], 500_000, "at least"),
        ("spark micro-batch of one row, p50 ms", found["trigger"]["p50_ms"], 150, "at most"),
        ("find by id in the archive, command, s", found["find"]["command_s"], 1.0, "at most"),
        *(
            [("spark source beside Spark's Kafka source", ours / kafka, 1.0, "at least")]
            if (kafka := found["kafka"].get("rate"))
            else []
        ),
    ]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2_000_000, help="messages in each topic")
    options = parser.parse_args()
    found = measure(options.count, told=lambda text: print(text, file=sys.stderr, flush=True))
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
