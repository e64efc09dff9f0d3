"""The queue as a Spark sink: every row once, whatever dies (P2)."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from ternmq.sync import connect
from tests.integration.pipeline.sink_driver import MARK, STEP, StoppingSource, copy, kill_at_commit
from tests.integration.processes import Node
from tests.waiting import wait_until

ROWS = 25_000
NOISE = "ARRAY_JOIN(TRANSFORM(SEQUENCE(1, 100000), n -> SHA2(STRING(n), 512)), '')"  # 6 MB packed.


def write(frame: DataFrame, node: Node, **options: Any) -> None:
    frame.write.format("tern").options(**({"url": node.url} | options)).mode("append").save()


def numbers(spark: SparkSession, count: int, partitions: int = 3) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("CAST(id AS STRING) AS body")


def bodies(node: Node, topic: str) -> list[bytes]:
    with connect(node.url, app="test") as mq:
        if topic not in [known.name for known in mq.admin.topics()]:
            return []
        return [message.body for message in mq.read(topic)]


def assert_exact(node: Node, topic: str, count: int) -> None:
    """Every number once, and nothing left open."""
    found = Counter(map(int, bodies(node, topic)))
    doubled = [number for number, times in found.items() if times > 1]
    missing = [number for number in range(count) if number not in found]
    assert (len(doubled), len(missing), len(found)) == (0, 0, count), (doubled[:5], missing[:5])
    with connect(node.url, app="test") as mq:
        assert [line for line in mq.admin.half_lines() if line.topic == topic] == []


def test_every_row_arrives_once_with_all_its_columns(spark: SparkSession, node: Node) -> None:
    """P2: body, key, tag, order key, properties, topic by column; the ledger is exact."""
    frame = spark.range(0, 3_000, 1, 3).selectExpr(
        "IF(id % 3 = 0, 'sink.a', 'sink.b') AS topic",
        "CAST(id AS STRING) AS body",
        "IF(id % 2 = 0, CONCAT('k', id), NULL) AS key",
        "IF(id % 5 = 0, 'five', 'other') AS tag",
        "CONCAT('o', id % 7) AS order_key",
        "MAP('n', CAST(id AS STRING), 'shape', 'round') AS properties",
        "CAST(NULL AS TIMESTAMP) AS deliver_at",
    )

    write(frame, node)

    with connect(node.url, app="test") as mq:
        for topic, rest in (("sink.a", {0}), ("sink.b", {1, 2})):
            messages = list(mq.read(topic))
            assert [int(message.body) for message in messages] == [
                number for number in range(3_000) if number % 3 in rest
            ], "in the order of the frame"
            for message in messages:
                number = int(message.body)
                assert message.key == (None if number % 2 else f"k{number}")
                assert message.tag == ("other" if number % 5 else "five")
                assert message.order_key == f"o{number % 7}"
                assert message.properties == {"n": str(number), "shape": "round"}
        with mq.consumer("sink.a", group="g") as consumer:
            for seen, message in enumerate(consumer, start=1):
                message.ack()
                if seen == 1_000:
                    break
            consumer.flush()
        [line] = mq.admin.ledger("sink.a", "g")
        assert (line.total, line.acked) == (1_000, 1_000)
        assert mq.admin.half_lines() == []


def test_a_job_that_is_run_again_writes_nothing_twice(
    spark: SparkSession, shared_node: Node
) -> None:
    """P2: jobId names a batch write."""
    for _ in range(2):
        write(numbers(spark, ROWS), shared_node, topic="sink.job", jobId="day-17")
    assert_exact(shared_node, "sink.job", ROWS)

    write(numbers(spark, 10), shared_node, topic="sink.free")
    write(numbers(spark, 10), shared_node, topic="sink.free")
    assert len(bodies(shared_node, "sink.free")) == 20


def failing(url: str, how: str, topic: str) -> Any:
    """Rows go through; then the task fails, in its first tries, when some of them are staged."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1 and (how == "always" or context.attemptNumber() < 2):
            with connect(url, app="test") as mq:
                wait_until(
                    lambda: any(line.topic == topic for line in mq.admin.half_lines()),
                    "rows of the task are staged",
                )
            if how == "kill" and context.attemptNumber() == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("the task has a bad day")

    return rows


def test_tasks_that_fail_after_staging_are_tried_again_without_doubles(
    spark: SparkSession, node: Node
) -> None:
    """P2: a try that raises, and one whose Python worker is killed -9."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    try:
        frame = numbers(spark, ROWS, 2).mapInArrow(failing(node.url, "kill", "to"), "body string")
        write(frame, node, topic="to", jobId="retried")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")

    assert_exact(node, "to", ROWS)


def test_a_job_that_fails_leaves_nothing_and_can_be_run_again(
    spark: SparkSession, node: Node
) -> None:
    """P2: abort touches what is not published, and the same jobId may try again."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    try:
        frame = numbers(spark, ROWS, 2).mapInArrow(failing(node.url, "always", "to"), "body string")
        with pytest.raises(PySparkException, match="bad day"):
            write(frame, node, topic="to", jobId="failed")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")

    assert bodies(node, "to") == []
    write(numbers(spark, ROWS), node, topic="to", jobId="failed")
    assert_exact(node, "to", ROWS)


def fill(node: Node, first: int, end: int) -> None:
    with connect(node.url, app="shop") as mq:
        mq.send_many("from", [b"%d" % number for number in range(first, end)])


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died before it wrote down that the last micro-batch is done."""
    commits = [path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()]
    last = max(commits, key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def test_a_stream_goes_on_and_a_micro_batch_that_is_run_again_writes_nothing(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    """P2: restarts of the checkpoint; the driver died after the broker's commit, before Spark's."""
    fill(node, 0, 2_500)
    copy(spark, node.url, tmp_path).awaitTermination()
    assert_exact(node, "to", 2_500)

    forget_last_commit(tmp_path)
    fill(node, 2_500, 3_000)
    copy(spark, node.url, tmp_path).awaitTermination()
    assert_exact(node, "to", 3_000)


@pytest.mark.parametrize(
    "step", ["fail before", pytest.param("fail after", marks=pytest.mark.long)]
)
def test_a_commit_that_fails_is_made_up_for_by_the_next_run(
    spark: SparkSession, node: Node, tmp_path: Path, step: str
) -> None:
    """P2: Spark aborts after a commit that raised, also when the rows were published."""
    spark.dataSource.register(StoppingSource)
    fill(node, 0, 1_500)
    options = {"format": "stopping", STEP: step, MARK: str(tmp_path / "mark")}

    query = copy(spark, node.url, tmp_path / "checkpoint", **options)
    with pytest.raises(StreamingQueryException, match="bad day"):
        query.awaitTermination()
    assert len(bodies(node, "to")) == (1_000 if "after" in step else 0)
    copy(spark, node.url, tmp_path / "checkpoint").awaitTermination()

    assert_exact(node, "to", 1_500)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("step", ["before", "after"])
def test_a_driver_killed_around_its_commit_doubles_and_loses_nothing(
    spark: SparkSession, node: Node, tmp_path: Path, step: str
) -> None:
    """P2: kill -9 of the driver, its JVM and its workers; the broker is restarted meanwhile."""
    fill(node, 0, 1_500)
    checkpoint = tmp_path / "checkpoint"
    kill_at_commit(node.url, checkpoint, step, tmp_path / "mark")
    node.kill()
    node.start()
    assert len(bodies(node, "to")) == (1_000 if step == "after" else 0)

    copy(spark, node.url, checkpoint).awaitTermination()

    assert_exact(node, "to", 1_500)


@pytest.mark.parametrize(
    ("column", "options", "said"),
    [
        ("'x' AS body", {"topik": "t"}, "did you mean 'topic'"),
        ("'x' AS body", {"topic": "t", "url": "tern://127.0.0.1:1"}, "cannot reach 127.0.0.1:1"),
        ("CAST(NULL AS STRING) AS body", {"topic": "t"}, "'body' has a null"),
        (f"{NOISE} AS body", {"topic": "t"}, "the limit is 4 MiB"),
    ],
)
def test_a_mistake_is_said(
    spark: SparkSession, shared_node: Node, column: str, options: dict[str, str], said: str
) -> None:
    """More of them in tests/unit/pipeline/sink/test_sink.py."""
    with pytest.raises(PySparkException) as raised:
        write(spark.range(1).selectExpr(column), shared_node, **options)
    assert said in str(raised.value)
