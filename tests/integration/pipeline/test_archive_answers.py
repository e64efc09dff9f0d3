"""DuckDB, pyarrow and Spark give the same answers about an archive (P3)."""

from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from ternmq.core.errors import BadRequest
from ternmq.pipeline.archive import compaction, delta_mirror
from ternmq.pipeline.archive.job import ArchiveJob, Archiver
from ternmq.pipeline.archive.search import ArchiveSearch, SearchTerms
from ternmq.pipeline.archive.store import ArchiveStore
from ternmq.sync import connect
from ternmq.wire.messages.groups import Start
from tests.integration.processes import Node

COLUMNS = "id, sequence, stored_at, born_at, key, tag, order_key, app, size, body, properties"
QUESTIONS = [
    "select topic, count(*), count(distinct id), sum(size) from M group by topic order by topic",
    "select tag, count(*), max(sequence) from M group by tag order by tag nulls first",
    "select id, sequence, key from M where key = 'k-3' order by id",
    "select topic, sequence, octet_length(body) from M where sequence between 5 and 9 order by 1,2",
    "select topic, event, count(*) from D where lane = 'topic' group by topic, event order by 1, 2",
    "select m.id, d.attempt from M m join D d on m.topic = d.topic and m.sequence = d.sequence "
    "where d.event = 'acked' and m.topic = 'answers.a' order by m.id",
]


@pytest.fixture(scope="module")
def target(
    spark: SparkSession, shared_node: Node, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Two topics, in several files, one of them compacted."""
    target = tmp_path_factory.mktemp("answers") / "archive"
    job = ArchiveJob(url=shared_node.url, target=str(target), topics=("answers.a", "answers.b"))
    with connect(shared_node.url, app="shop") as mq:
        for turn in range(3):
            for number in range(10):
                topic = "answers.a" if number % 3 else "answers.b"
                mq.send(
                    topic,
                    b"x" * number,
                    key=f"k-{number}",
                    tag="vip" if turn else None,
                    properties={"n": number} if number % 2 else None,
                )
            if turn == 1:
                with mq.consumer("answers.a", group="g") as consumer:
                    for _ in range(8):
                        next(consumer).ack()
                    consumer.flush()
                mq.admin.create_group("answers.a", "other", Start(at="latest"))  # Syncs the log.
            Archiver(spark, job).run_once(lambda _: None)
            if turn == 1:
                compaction.compact(spark, str(target), "2999-01-01", lambda *_: None)
    return target


@pytest.mark.parametrize("question", QUESTIONS)
def test_spark_and_duckdb_agree(spark: SparkSession, target: Path, question: str) -> None:
    with duckdb.connect() as database:
        for name, kind in (("M", "messages"), ("D", "deliveries")):
            files = f"read_parquet('{target}/{kind}/**/*.parquet', hive_partitioning=true)"
            database.execute(f"create view {name} as select * from {files}")
            spark.read.parquet(str(target / kind)).createOrReplaceTempView(name)
        by_duckdb = database.execute(question).fetchall()

    by_spark = [tuple(row) for row in spark.sql(question.replace(" nulls first", "")).collect()]

    assert by_duckdb == by_spark and by_duckdb


@pytest.mark.parametrize(
    "wanted",
    [{"key": "k-3"}, {"topic": "answers.b"}, {"topic": "answers.a", "key": "k-4"}, {"id": "FIRST"}],
)
def test_find_answers_what_spark_answers(
    spark: SparkSession, target: Path, wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = spark.read.parquet(str(target / "messages"))
    if "id" in wanted:
        wanted = {"id": rows.agg({"id": "min"}).first()[0]}  # type: ignore[index]
    condition = " and ".join(f"{name} = '{value}'" for name, value in wanted.items())
    expected = rows.where(condition).selectExpr("topic", *COLUMNS.split(", ")).collect()
    order = sorted(
        (row.asDict() for row in expected), key=lambda row: (row["topic"], row["sequence"])
    )

    by_duckdb = ArchiveSearch(str(target)).messages(SearchTerms(**wanted))
    monkeypatch.setattr(ArchiveStore, "is_local", False)  # As where files are not on this machine.
    by_pyarrow = ArchiveSearch(str(target)).messages(SearchTerms(**wanted))

    for found in (by_duckdb, by_pyarrow):
        found.sort(key=lambda row: (row["topic"], row["sequence"]))
        assert len(found) == len(order) > 0
        for mine, theirs in zip(found, order, strict=True):
            for name, value in theirs.items():
                same = bytes(value) if name == "body" else value
                got = mine[name].replace(tzinfo=None) if name.endswith("_at") else mine[name]
                assert got == same, name


def test_a_target_that_cannot_be_written_is_one_clear_line(
    spark: SparkSession, shared_node: Node, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")

    with pytest.raises(BadRequest, match="cannot write to"):
        Archiver(spark, ArchiveJob(url=shared_node.url, target=str(tmp_path / "file" / "archive")))


def test_an_archive_is_a_delta_table_too(
    spark: SparkSession, shared_node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P3: after rounds, after a job that died before its Delta commit, after compaction."""
    target = tmp_path / "archive"
    job = ArchiveJob(url=shared_node.url, target=str(target), topics=("delta.a",), delta=True)

    def rows() -> list[int]:
        found = DeltaTable(str(target / "messages")).to_pyarrow_table(columns=["sequence", "topic"])
        assert set(found["topic"].to_pylist()) == {"delta.a"}
        return sorted(found["sequence"].to_pylist())

    with connect(shared_node.url, app="shop") as mq:
        mq.send_many("delta.a", [b"x"] * 10)
        Archiver(spark, job).run_once(lambda _: None)
        assert rows() == list(range(10))
        mq.send_many("delta.a", [b"x"] * 10)
    with monkeypatch.context() as patched:
        patched.setattr(delta_mirror, "mirror", lambda *_: (_ for _ in ()).throw(OSError("dead")))
        with pytest.raises(OSError, match="dead"):
            Archiver(spark, job).run_once(lambda _: None)
    assert rows() == list(range(10))
    Archiver(spark, job).run_once(lambda _: None)
    assert rows() == list(range(20))

    before, after = compaction.compact(spark, str(target), "2999-01-01", lambda *_: None)

    assert before > after and rows() == list(range(20))
