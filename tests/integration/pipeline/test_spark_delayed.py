"""Rows of the Spark sink that are for later: each seen once, at its time, whatever dies (P2)."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from ternmq.sync import connect
from tests.integration.pipeline.sink_driver import MARK, STEP, StoppingSource, copy, kill_at_commit
from tests.integration.processes import Node, NodeFactory
from tests.integration.turned_clock import SharedClock
from tests.waiting import wait_until

NUMBER = "CAST(CAST(body AS STRING) AS INT)"
ODD_LATER = f"IF({NUMBER} % 2 = 1, CURRENT_TIMESTAMP() + INTERVAL 1 HOUR, NULL) AS deliver_at"


@pytest.fixture
def clock(tmp_path: Path) -> SharedClock:
    return SharedClock(tmp_path / "clock")


@pytest.fixture
def turned(node_factory: NodeFactory, clock: SharedClock) -> Node:
    return node_factory(prefix=clock.prefix)


def numbers(node: Node, topic: str = "to") -> list[int]:
    with connect(node.url, app="test") as mq:
        if topic not in [known.name for known in mq.admin.topics()]:
            return []
        return [int(message.body) for message in mq.read(topic)]


def waiting(node: Node) -> int:
    with connect(node.url, app="test") as mq:
        return sum(line.accepted for line in mq.admin.delays.ledger())


def assert_at_its_time(node: Node, clock: SharedClock, count: int) -> None:
    """Even ones now, odd ones in an hour, each once."""
    wait_until(lambda: waiting(node) >= count // 2, "the delay server has them", seconds=30)
    assert sorted(numbers(node)) == list(range(0, count, 2))
    clock.turn(3_000)
    assert sorted(numbers(node)) == list(range(0, count, 2)), "not before its time"
    clock.turn(700)
    wait_until(lambda: len(numbers(node)) >= count, "the rest is due", seconds=30)
    found = Counter(numbers(node))
    assert (len(found), max(found.values()), waiting(node)) == (count, 1, count // 2)


def fill(node: Node, end: int) -> None:
    with connect(node.url, app="shop") as mq:
        mq.send_many("from", [b"%d" % number for number in range(end)])


def test_a_job_writes_rows_for_now_and_for_later_and_run_again_none_of_them(
    spark: SparkSession, turned: Node, clock: SharedClock
) -> None:
    frame = spark.range(0, 3_000, 1, 3).selectExpr("STRING(id) AS body", "CONCAT('k', id) AS key")
    for _ in range(2):
        writing = frame.selectExpr("*", ODD_LATER).write.format("tern").mode("append")
        writing.options(url=turned.url, topic="to", jobId="day").save()
    assert_at_its_time(turned, clock, 3_000)
    with connect(turned.url, app="test") as mq:
        found = list(mq.read("to"))
    assert all(message.key == f"k{int(message.body)}" for message in found)
    assert {message.app for message in found} == {"spark"}
    assert len({message.id for message in found}) == 3_000


@pytest.mark.long
@pytest.mark.parametrize(
    "step", [pytest.param("fail before", marks=pytest.mark.long), "fail after"]
)
def test_a_driver_that_fails_around_its_commit_is_not_needed_for_what_is_committed(
    spark: SparkSession, turned: Node, clock: SharedClock, tmp_path: Path, step: str
) -> None:
    """Spark aborts, the node is killed -9 at once; the query is run again."""
    spark.dataSource.register(StoppingSource)
    fill(turned, 1_500)
    options = {"format": "stopping", STEP: step, MARK: str(tmp_path / "mark")}
    query = copy(spark, turned.url, tmp_path / "checkpoint", ODD_LATER, **options)
    with pytest.raises(StreamingQueryException, match="bad day"):
        query.awaitTermination()
    turned.kill()
    turned.start()
    if "after" in step:
        wait_until(lambda: waiting(turned) == 500, "taken without any driver", seconds=30)
    copy(spark, turned.url, tmp_path / "checkpoint", ODD_LATER).awaitTermination()
    assert_at_its_time(turned, clock, 1_500)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("step", ["before", "after"])
def test_a_driver_killed_around_its_commit_doubles_and_loses_nothing_for_later(
    spark: SparkSession, turned: Node, clock: SharedClock, tmp_path: Path, step: str
) -> None:
    """kill -9 of the driver, its JVM and its workers, and of the node behind it."""
    fill(turned, 1_500)
    checkpoint = tmp_path / "checkpoint"
    kill_at_commit(turned.url, checkpoint, step, tmp_path / "mark", ODD_LATER)
    turned.kill()
    turned.start()
    copy(spark, turned.url, checkpoint, ODD_LATER).awaitTermination()
    assert_at_its_time(turned, clock, 1_500)


@pytest.mark.long
def test_without_a_delay_server_rows_for_later_are_refused(
    spark: SparkSession, node_factory: NodeFactory
) -> None:
    node = node_factory(arguments=["--no-delay"])
    frame = spark.range(3).selectExpr("STRING(id) AS body", ODD_LATER)
    with pytest.raises(PySparkException, match="knows no delay server"):
        frame.write.format("tern").mode("append").options(url=node.url, topic="to").save()
    assert numbers(node) == []
