"""Streams through what happens to them: limits, old checkpoints, new topics, retention (P1)."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ternmq.sync import connect
from ternmq.wire.messages.groups import Start
from tests.integration.processes import Node, NodeFactory
from tests.waiting import wait_until

GOLDEN = Path(__file__).parents[2] / "golden" / "spark_checkpoint_v1"
LAST = "offsets/2"
RETENTION = {
    "TERN_SEGMENT_SIZE": "8MiB",
    "TERN_RETENTION_SIZE": "17MiB",
    "TERN_RETENTION_INTERVAL_MS": "100",
    "TERN_CHECKPOINT_INTERVAL_MS": "100",
}

Batches = list[list[int]]


def start(
    spark: SparkSession, node: Node, checkpoint: Path, seen: Batches, **options: Any
) -> StreamingQuery:
    """A query that notes the sequences of each of its batches."""
    wanted = {"url": node.url, "startingOffsets": "earliest"} | options
    ends = wanted.pop("ends", True)

    def note(batch: DataFrame, _: int) -> None:
        seen.append(sorted(row.sequence for row in batch.collect()))

    stream = spark.readStream.format("tern").options(**wanted).schema("sequence long").load()
    writer = stream.writeStream.foreachBatch(note).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if ends else writer).start()


def run(spark: SparkSession, node: Node, checkpoint: Path, **options: Any) -> Batches:
    seen: Batches = []
    start(spark, node, checkpoint, seen, **options).awaitTermination()
    return [batch for batch in seen if batch]


def test_a_limit_in_bytes_ends_batches_between_stored_batches(
    spark: SparkSession, shared_node: Node, tmp_path: Path
) -> None:
    """P1: maxBytesPerTrigger beside a limit of rows; the smaller one counts."""
    with connect(shared_node.url, app="shop") as mq:
        for _ in range(6):
            mq.send_many("bytes.one", [os.urandom(1_000) for _ in range(10)])
        mq.send_many("bytes.two", [b"x"] * 5)

    both = run(
        spark,
        shared_node,
        tmp_path / "b",
        subscribe="bytes.one,bytes.two",
        maxBytesPerTrigger=45_000,
        maxOffsetsPerTrigger=1_000,
    )

    assert both == [sorted([*range(5), *range(40)]), list(range(40, 60))]


def test_a_checkpoint_of_an_earlier_release_goes_on(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    """P1: its last batch was not finished and comes again, the same rows."""
    shutil.copytree(GOLDEN, tmp_path / "checkpoint")
    with connect(node.url, app="shop") as mq:
        mq.send_many("golden.orders", [b"%d" % n for n in range(30)])

    seen = run(spark, node, tmp_path / "checkpoint", subscribe="golden.orders")

    assert seen == [list(range(10, 20)), list(range(20, 30))]


@pytest.mark.parametrize(
    ("position", "said"),
    [
        ('{"orders": {"0": 17}}', "is the checkpoint that of another query"),
        ('{"c": "other", "o": {"a": {"main": 1}}, "v": 1}', "the checkpoint is of cluster other"),
    ],
)
def test_a_checkpoint_that_is_not_ours_is_one_clear_line(
    spark: SparkSession, shared_node: Node, tmp_path: Path, position: str, said: str
) -> None:
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(GOLDEN, checkpoint)
    for name in ("offsets/1", LAST):
        text = (checkpoint / name).read_text(encoding="utf-8")
        (checkpoint / name).write_text(text.rpartition("\n")[0] + "\n" + position, encoding="utf-8")

    with pytest.raises(PySparkException, match=said):
        run(spark, shared_node, checkpoint, subscribe="a")


@pytest.fixture
def running() -> Iterator[list[StreamingQuery]]:
    """Queries that do not end by themselves."""
    queries: list[StreamingQuery] = []
    yield queries
    for query in queries:
        query.stop()


def test_a_topic_made_while_the_stream_runs_is_read_from_its_start(
    spark: SparkSession, shared_node: Node, tmp_path: Path, running: list[StreamingQuery]
) -> None:
    seen: Batches = []
    with connect(shared_node.url, app="shop") as mq:
        mq.send_many("grows.one", [b"x"] * 3)
        wanted = {"subscribePattern": "grows[.].*", "startingOffsets": "latest", "ends": False}
        running.append(start(spark, shared_node, tmp_path / "c", seen, **wanted))
        wait_until(lambda: bool(seen), "the first batch", seconds=60)

        mq.send_many("grows.two", [b"y"] * 7)
        mq.send("grows.one", b"x")

    wait_until(lambda: sum(map(len, seen)) >= 8, "the rows of both topics", seconds=60)
    assert sorted(row for batch in seen for row in batch) == [0, 1, 2, 3, 3, 4, 5, 6]


@pytest.mark.long
def test_a_stream_waits_for_enough_rows_but_not_longer_than_it_was_told(
    spark: SparkSession, shared_node: Node, tmp_path: Path, running: list[StreamingQuery]
) -> None:
    """P1: minOffsetsPerTrigger and maxTriggerDelay of streams that run."""
    patient: Batches = []
    short: Batches = []
    wanted = {"subscribe": "enough", "minOffsetsPerTrigger": 100, "ends": False}
    with connect(shared_node.url, app="shop") as mq:
        mq.send_many("enough", [b"x"] * 30)
        for seen, delay in ((patient, "1h"), (short, "2s")):
            folder = tmp_path / delay
            running.append(start(spark, shared_node, folder, seen, maxTriggerDelay=delay, **wanted))
        wait_until(lambda: any(short), "rows after the delay, though too few", seconds=60)
        assert list(filter(None, short)) == [list(range(30))]
        assert not any(patient), "it goes on waiting for more"
        mq.send_many("enough", [b"x"] * 80)
        wait_until(lambda: any(patient), "enough rows", seconds=60)
    assert list(filter(None, patient)) == [list(range(110))]


def test_a_stream_that_retention_overtook_stops_or_goes_on_as_it_was_told(
    spark: SparkSession, node_factory: NodeFactory, tmp_path: Path
) -> None:
    """P1: failOnDataLoss, against segments that are really gone."""
    node = node_factory(environment=RETENTION)
    options = {"subscribe": "filler"}
    with connect(node.url, app="shop") as mq:
        mq.send_many("filler", [b"first"] * 10)
        assert run(spark, node, tmp_path / "c", **options) == [list(range(10))]

        def overtaken() -> bool:
            mq.send_many("filler", [os.urandom(512 * 1024) for _ in range(4)])
            return mq.admin.seek("filler", Start(at="earliest")).first > 10

        wait_until(overtaken, "the first segment going", seconds=60)
        bounds = mq.admin.seek("filler", Start(at="earliest"))

    with pytest.raises(PySparkException, match="messages were removed"):
        run(spark, node, tmp_path / "c", **options)
    left = run(spark, node, tmp_path / "c", failOnDataLoss="false", **options)

    rows = [row for batch in left for row in batch]
    assert rows[-1] == bounds.end - 1
    assert rows[0] >= bounds.first and rows == list(range(rows[0], bounds.end))


def test_the_job_that_fails_says_what_our_code_said() -> None:
    from ternmq.pipeline.spark.session import first_line

    trace = "[X] failed: Traceback\n  File x\nternmq.core.errors.BadRequest: no topic 'x'\n\tat a.b"
    assert first_line(ValueError(trace)) == "no topic 'x'"
    assert first_line(ValueError("[COLUMN] not found\nmore")) == "[COLUMN] not found"
