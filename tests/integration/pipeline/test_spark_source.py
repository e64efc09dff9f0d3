"""The queue as a Spark source: batch and stream, by position and by time, restartable (P1)."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ternmq.client.admin.replay import Replay
from ternmq.sync import connect
from ternmq.wire.messages.groups import Start
from tests.integration.processes import Node


def read(spark: SparkSession, node: Node, **options: Any) -> DataFrame:
    return spark.read.format("tern").options(url=node.url, **options).load()


def fill(node: Node, topic: str, first: int, end: int) -> None:
    with connect(node.url, app="shop") as mq:
        mq.send_many(topic, [b"%d" % n for n in range(first, end)], tag="t", properties={"n": 1})


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.body) for row in frame.select("body").collect())


def test_a_batch_has_every_message_with_all_its_columns(
    spark: SparkSession, shared_node: Node
) -> None:
    """P1."""
    with connect(shared_node.url, app="shop") as mq:
        receipt = mq.send(
            "spark.one", b"hello", key="k", tag="vip", properties={"n": 5}, order_key="o"
        )
    frame = read(spark, shared_node, subscribe="spark.one")

    [row] = frame.collect()

    assert (row.id, row.sequence, bytes(row.body)) == (receipt.id, 0, b"hello")
    assert (row.topic, row.broker_group, row.key, row.tag) == ("spark.one", "main", "k", "vip")
    assert (row.order_key, row.properties, row.app, row.size) == ("o", {"n": "5"}, "shop", 5)
    assert row.client_address.startswith("127.0.0.1:")
    assert row.born_at <= row.stored_at


def test_ranges_are_split_into_tasks_and_counted_exactly(
    spark: SparkSession, shared_node: Node
) -> None:
    """P1: by position, in more tasks than broker groups. Messages without an order key may be
    stored in another order than they were sent in, so positions are compared, not bodies."""
    fill(shared_node, "spark.split", 0, 10_000)
    where = {
        "startingOffsets": '{"spark.split": {"main": 100}}',
        "endingOffsets": '{"spark.split": {"main": 9100}}',
    }

    frame = read(spark, shared_node, subscribe="spark.split", minPartitions=4, **where)

    assert frame.rdd.getNumPartitions() >= 4
    rows = frame.select("sequence", "body").collect()
    assert sorted(row.sequence for row in rows) == list(range(100, 9_100))
    assert len({bytes(row.body) for row in rows}) == 9_000


def test_nobody_sees_what_is_undecided_or_rolled_back(
    spark: SparkSession, shared_node: Node
) -> None:
    """R11, P1: neither the source nor `read` nor a replay; sequences have no gaps for it."""
    topic = "spark.halves"
    with connect(shared_node.url, app="halves") as mq:
        mq.transaction_checker(lambda question: "unknown")
        mq.send(topic, b"1")
        with mq.transaction(first_check=3600) as committed:
            committed.send_many(topic, [b"2", b"3"])
            with mq.transaction() as back:
                back.send(topic, b"101")
                back.rollback()
        undecided = mq.transaction(first_check=3600)
        undecided.send(topic, b"102")
        mq.detached("spark.halves", expires=3600).send(topic, b"103")
        mq.send(topic, b"4")
        mq.admin.create_group(topic, "again", Start(at="latest"))
        copied = mq.admin.replay(Replay(topic=topic, into="again"))

        found = read(spark, shared_node, subscribe=topic).select("sequence", "body").collect()

        assert sorted((row.sequence, int(row.body)) for row in found) == [
            (0, 1),
            (1, 2),
            (2, 3),
            (3, 4),
        ]
        assert [message.body for message in mq.read(topic)] == [b"1", b"2", b"3", b"4"]
        assert copied.copied == 4
        undecided.rollback()


def test_a_schema_is_a_projection(spark: SparkSession, shared_node: Node) -> None:
    fill(shared_node, "spark.few", 0, 10)
    reader = spark.read.format("tern").options(url=shared_node.url, subscribe="spark.few")

    frame = reader.schema("sequence long, tag string").load()

    assert [tuple(row) for row in frame.collect()] == [(n, "t") for n in range(10)]


def test_a_batch_starts_at_a_time(spark: SparkSession, shared_node: Node) -> None:
    fill(shared_node, "spark.times", 0, 5)
    with connect(shared_node.url, app="shop") as mq:
        later = mq.send("spark.times", b"5")
        while mq.send("spark.times", b"6").stored_at == later.stored_at:
            pass
    time_ms = int(later.stored_at.timestamp() * 1000)

    found = read(spark, shared_node, subscribe="spark.times", startingTimestamp=time_ms)
    before = read(spark, shared_node, subscribe="spark.times", endingTimestamp=time_ms)
    named = {"endingOffsetsByTimestamp": json.dumps({"spark.times": time_ms})}
    by_topic = read(spark, shared_node, subscribe="spark.times", **named)
    never = {"endingTimestamp": time_ms + 3_600_000}  # Nothing is so young: all there is.

    assert set(numbers(found)) >= {5, 6}
    everything = read(spark, shared_node, subscribe="spark.times", **never).collect()
    older = [row for row in everything if round(row.stored_at.timestamp() * 1000) < time_ms]
    assert numbers(before) == numbers(by_topic) == sorted(int(row.body) for row in older)
    assert len(everything) == len(numbers(found)) + len(older)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "no.such.topic"}, "there is no topic 'no.such.topic'"),
        ({"subscribe": "spark.one", "startingOfsets": "earliest"}, "did you mean"),
        ({"subscribe": "a", "url": "tern://127.0.0.1:1"}, "cannot reach 127.0.0.1:1"),
    ],
)
def test_a_mistake_is_said(
    spark: SparkSession, shared_node: Node, options: dict[str, str], said: str
) -> None:
    wanted = {"url": shared_node.url, **options}
    with pytest.raises(PySparkException, match=said):
        spark.read.format("tern").options(**wanted).load().collect()


def test_a_stream_goes_on_where_it_was_stopped(
    spark: SparkSession, shared_node: Node, tmp_path: Path
) -> None:
    """P1: checkpointed, restartable, rate-limited; a topic made later is read from its start."""
    fill(shared_node, "spark.s1", 0, 1_000)

    def run() -> list[int]:
        stream = spark.readStream.format("tern").options(
            url=shared_node.url,
            subscribePattern=r"spark\.s[0-9]",
            startingOffsets="earliest",
            maxOffsetsPerTrigger="400",
        )
        query = (
            stream.load()
            .select("body")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "out"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return numbers(spark.read.parquet(str(tmp_path / "out")))

    assert run() == list(range(1_000))
    fill(shared_node, "spark.s1", 1_000, 1_500)
    fill(shared_node, "spark.s2", 1_500, 1_600)
    assert run() == list(range(1_600))
    assert run() == list(range(1_600))


def test_deliveries_say_who_was_handed_what(spark: SparkSession, node: Node) -> None:
    """R23, J4: the pull log as rows."""
    fill(node, "work", 0, 20)
    with connect(node.url, app="shop") as mq, mq.consumer("work", group="billing") as consumer:
        for message in consumer:
            if message.sequence == 7 and message.attempt == 1:
                message.retry(after=0, reason="not yet")
                continue
            message.ack()
            if message.sequence == 7:
                break
        consumer.flush()
    with connect(node.url) as mq:  # A decision syncs the log, and readers see what is safe.
        mq.admin.create_group("work", "other", Start(at="latest"))

    found = read(spark, node, stream="deliveries").where("topic = 'work'")

    rows = {(row.event, row.sequence, row.attempt) for row in found.collect()}
    assert {("acked", n) for n in range(20)} <= {(event, n) for event, n, _ in rows}
    assert ("handed_out", 7, 2) in rows
    [retry] = found.where("event = 'retry'").collect()
    assert (retry.sequence, retry.group, retry.broker_group) == (7, "billing", "main")
