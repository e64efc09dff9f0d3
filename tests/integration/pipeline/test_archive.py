"""The archive: every message and every delivery in Parquet, once, whatever is killed (P3, J4)."""

import json
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pandas  # type: ignore[import-untyped]
import polars
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from ternmq.core.errors import BadRequest
from ternmq.pipeline.archive import compaction
from ternmq.pipeline.archive.job import ArchiveJob, Archiver
from ternmq.pipeline.archive.search import ArchiveSearch, SearchTerms
from ternmq.pipeline.archive.store import ArchiveStore
from ternmq.pipeline.jobs.replay import Replayer, ReplayJob
from ternmq.pipeline.jobs.trace import TraceJob, trace
from ternmq.sync import connect
from ternmq.wire.messages.groups import Start
from tests.integration.processes import COMMAND, Node


def archive(spark: SparkSession, node: Node, target: str, **options: Any) -> int:
    rows = 0

    def told(done: Any) -> None:
        nonlocal rows
        rows += done.messages

    Archiver(spark, ArchiveJob(url=node.url, target=target, **options)).run_once(told)
    return rows


def fill(node: Node, topic: str, first: int, end: int) -> list[str]:
    with connect(node.url, app="shop") as mq:
        receipt = mq.send_many(topic, [b"%d" % n for n in range(first, end)], key="k", tag="t")
        return [receipt[at].id for at in range(len(receipt))]


def duck(target: Path, question: str) -> list[tuple[Any, ...]]:
    files = f"read_parquet('{target}/messages/**/*.parquet', hive_partitioning=true)"
    return duckdb.connect().execute(question.replace("ARCHIVE", files)).fetchall()


def test_every_message_is_archived_once_and_any_reader_reads_it(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    """P3: DuckDB, Polars, pandas, pyarrow and Spark agree."""
    target = tmp_path / "archive"
    ids = fill(node, "orders", 0, 3_000) + fill(node, "bills", 0, 10)

    assert archive(spark, node, str(target), round_rows=1_000) == 3_010
    ids += fill(node, "orders", 3_000, 3_500)
    assert archive(spark, node, str(target)) == 500
    assert archive(spark, node, str(target)) == 0

    assert duck(target, "select count(*), count(distinct id) from ARCHIVE") == [(3_510, 3_510)]
    assert {row[0] for row in duck(target, "select id from ARCHIVE")} == set(ids)
    by_spark = spark.read.parquet(str(target / "messages")).groupBy("topic").count().collect()
    assert {row["topic"]: row["count"] for row in by_spark} == {"orders": 3_500, "bills": 10}
    assert len(pq.read_table(target / "messages", columns=["id"])) == 3_510
    lazy = polars.scan_parquet(target / "messages/**/*.parquet", hive_partitioning=True)
    last = lazy.filter(polars.col("topic") == "orders").sort("sequence").tail(1).collect()
    assert last["body"].to_list() == [b"3499"] and lazy.collect()["id"].n_unique() == 3_510
    assert set(pandas.read_parquet(target / "messages")["topic"]) == {"orders", "bills"}


def test_a_message_is_found_with_its_timeline(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    """P3, R23: sent, stored, each delivery, outcome; without Spark."""
    fill(node, "orders", 0, 100)
    with connect(node.url, app="shop") as mq:
        wanted = mq.send("orders", b"find me", key="o-17", tag="vip")
        with mq.consumer("orders", group="billing") as consumer:
            for message in consumer:
                message.ack()
                if message.id == wanted.id:
                    break
            consumer.flush()
        mq.admin.create_group("orders", "other", Start(at="latest"))  # Syncs the pull log.
    target = tmp_path / "archive"
    archive(spark, node, str(target))

    found = subprocess.run(
        [*COMMAND, "pipeline", "find", "--archive", str(target), "--id", wanted.id, "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    [row] = json.loads(found.stdout)
    assert (row["sequence"], row["key"], row["body"]) == (100, "o-17", "find me")
    events = [step["event"] for step in row["timeline"]]
    assert events[0] == "handed_out" and events[-1] == "acked"
    search = ArchiveSearch(str(target))
    assert [row["id"] for row in search.messages(SearchTerms(key="o-17"))] == [wanted.id]
    assert len(search.messages(SearchTerms(topic="orders", limit=1_000))) == 101
    assert search.messages(SearchTerms(id="0" * 26)) == []


def test_days_that_ended_are_compacted_and_old_ones_go(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    target = tmp_path / "archive"
    for first in (0, 50, 100):
        fill(node, "orders", first, first + 50)
        archive(spark, node, str(target))
    before = duck(target, "select * from ARCHIVE order by sequence")

    assert compaction.compact(spark, str(target), "2999-01-01", lambda *_: None) == (3, 1)

    assert duck(target, "select * from ARCHIVE order by sequence") == before
    fill(node, "orders", 150, 160)
    assert archive(spark, node, str(target)) == 10
    assert compaction.drop_old(str(target), "2999-01-01") == 2
    assert not list((target / "messages").rglob("*.parquet"))
    assert archive(spark, node, str(target)) == 0, "what was let go does not come back"


def test_a_job_that_died_before_placing_its_files_is_finished(
    spark: SparkSession, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "archive"
    fill(node, "orders", 0, 100)
    with monkeypatch.context() as patched:
        patched.setattr(ArchiveStore, "place", lambda *_: (_ for _ in ()).throw(OSError("dead")))
        with pytest.raises(OSError, match="dead"):
            archive(spark, node, str(target))
    assert len(ArchiveSearch(str(target)).messages(SearchTerms(topic="orders"))) == 100

    assert archive(spark, node, str(target)) == 0

    assert duck(target, "select count(*) from ARCHIVE") == [(100,)]


def test_two_jobs_at_once_archive_every_message_once(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    target = tmp_path / "archive"
    fill(node, "orders", 0, 100)
    job = ArchiveJob(url=node.url, target=str(target), round_rows=50)
    one, other = Archiver(spark, job), Archiver(spark, job)
    ends = one._ends()
    for archiver in (one, other, other, one, one):
        archiver.round(ends)

    while one.round(ends) is not None or other.round(ends) is not None:
        pass

    assert duck(target, "select count(*), count(distinct id) from ARCHIVE") == [(100, 100)]


@pytest.mark.parametrize("said", ["another cluster", "no archive"])
def test_a_wrong_folder_is_one_clear_line(
    spark: SparkSession, shared_node: Node, tmp_path: Path, said: str
) -> None:
    if said == "another cluster":
        ArchiveStore(str(tmp_path / "a")).prepare("someone-else")
        match = "is the archive of cluster someone-else"
    else:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "photo.jpg").touch()
        match = "neither empty nor an archive"

    with pytest.raises(BadRequest, match=match):
        archive(spark, shared_node, str(tmp_path / "a"))


def test_an_archive_may_lie_in_s3(s3: str, spark: SparkSession, node: Node) -> None:
    """P3, P5: found and replayed from there."""
    ids = fill(node, "orders", 0, 200)

    assert archive(spark, node, s3) == 200
    assert archive(spark, node, s3) == 0

    search = ArchiveSearch(s3)
    assert [row["id"] for row in search.messages(SearchTerms(id=ids[0]))] == [ids[0]]
    assert len(search.messages(SearchTerms(topic="orders", limit=1_000))) == 200
    where = "sequence >= 50 and properties['n'] is null and date > '2000'"
    replay = ReplayJob(url=node.url, archive=s3, topic="orders", to_topic="again", where=where)
    for sent in (150, 0):
        replayer = Replayer(spark, replay)
        replayer.count(dry_run=False)
        assert replayer.run(lambda _: None, lambda: False) == sent
    with connect(node.url) as mq:
        assert [message.id for message in mq.read("again")] == ids[50:]


@pytest.mark.long
def test_an_archive_in_s3_is_traced(s3: str, spark: SparkSession, node: Node) -> None:
    fill(node, "orders", 0, 200)
    with connect(node.url) as mq, mq.consumer("orders", group="billing") as consumer:
        for seen, message in enumerate(consumer, start=1):
            message.ack()
            if seen == 150:
                break
        consumer.flush()
        mq.admin.create_group("orders", "other", Start(at="latest"))  # Syncs the pull log.
    archive(spark, node, s3)

    owed = trace(spark, TraceJob(archive=s3))["audit"]

    assert {row["group"]: row["never_acked"] for row in owed} == {"billing": 50, "other": 0}
