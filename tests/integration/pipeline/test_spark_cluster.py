"""Spark and several broker groups: sink, rows for later, and a group that is added (P1, P2)."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ternmq.core.errors import TernError
from ternmq.pipeline.cluster import cluster
from ternmq.pipeline.positions import TopicPlace
from ternmq.sync import Client, connect
from tests.integration.broker_pair import GROUP, make_pair
from tests.integration.pipeline.test_spark_streams import Batches, start
from tests.integration.processes import Node, NodeFactory
from tests.integration.replication.test_failover_order import kill
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
LATER = "IF(id % 2 = 1, CURRENT_TIMESTAMP() + INTERVAL 20 SECONDS, NULL) AS deliver_at"


@pytest.fixture
def meta(node_factory: NodeFactory, tmp_path: Path) -> Node:
    """A cluster of two broker groups."""
    meta = node_factory.meta_server(f"sqlite:///{tmp_path / 'registry.db'}")
    for name in ("east", "west"):
        node_factory.broker_server(meta.url, name)
    return meta


def test_a_job_over_two_groups_is_once_also_for_what_is_due_later(
    spark: SparkSession, meta: Node, node_factory: NodeFactory
) -> None:
    delay = node_factory.delay_server(meta)
    frame = spark.range(0, 2_000, 1, 4).selectExpr("STRING(id) AS body", LATER)
    for _ in range(2):
        writing = frame.write.format("tern").mode("append")
        writing.options(url=meta.url, topic="to", jobId="day").save()
    delay.kill()
    delay.start()

    with connect(meta.url, app="test") as mq:

        def due() -> bool:
            return sum(1 for _ in mq.read("to")) >= 2_000

        wait_until(due, "everything is due", seconds=90)
        found = Counter(int(message.body) for message in mq.read("to"))
        assert (len(found), max(found.values())) == (2_000, 1)
        assert {message.broker_group for message in mq.read("to")} == {"east", "west"}
        assert [line.accepted for line in mq.admin.delays.ledger()] == [1_000]
        assert mq.admin.half_lines() == []


def test_a_broker_group_added_while_the_stream_runs_is_read_from_its_start(
    spark: SparkSession, meta: Node, node_factory: NodeFactory, tmp_path: Path
) -> None:
    seen: Batches = []
    with connect(meta.url, app="shop") as mq:
        for number in range(10):
            mq.send("orders", b"%d" % number)
        query = start(spark, meta, tmp_path / "c", seen, subscribe="orders", ends=False)
        try:
            wait_until(lambda: sum(map(len, seen)) >= 10, "what was there", seconds=60)
            node_factory.broker_server(meta.url, "north")
            sent = 10

            def taken() -> bool:
                nonlocal sent
                mq.send("orders", b"x")
                sent += 1
                return "north" in {message.broker_group for message in mq.read("orders")}

            wait_until(taken, "the new group gets messages", seconds=60)
            wait_until(lambda: sum(map(len, seen)) >= sent, "all of them", seconds=60)
        finally:
            query.stop()
    assert sum(map(len, seen)) == sent


def test_a_query_reads_from_a_replica_what_the_master_says_is_there(
    spark: SparkSession, node_factory: NodeFactory, tmp_path: Path
) -> None:
    """P1: `from=replica`; also the rows that came while the replica was behind."""
    pair = make_pair(node_factory, tmp_path, settings={"TERN_REPLICA_LOST": "continue"})
    with connect(pair.url, app="shop") as mq:
        mq.send_many("orders", [b"%d" % number for number in range(5_000)])
    wanted = {"url": pair.url, "subscribe": "orders", "from": "replica"}

    assert spark.read.format("tern").options(**wanted).load().count() == 5_000
    place, replica = TopicPlace("orders", GROUP), pair.replica()
    here = cluster(pair.url)
    pieces = here.read(place, 0, 5_000, [], replica=True)
    assert sum(envelope.batch.count for piece in pieces for envelope in piece) == 5_000
    link = here.client.cluster.reader(GROUP)
    assert link.connection is not None and link.connection.address.endswith(f":{replica.port + 1}")


def test_what_a_replica_has_a_little_later_is_waited_for(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    pair = make_pair(node_factory, tmp_path, settings={"TERN_REPLICA_LOST": "continue"})
    replica = pair.replica()
    with connect(pair.url, app="shop") as mq:
        mq.send("orders", b"both")
        here, place = cluster(pair.url), TopicPlace("orders", GROUP)
        assert sum(map(len, here.read(place, 0, 1, [], replica=True))) == 1
        os.kill(replica.pid, signal.SIGSTOP)
        mq.send("orders", b"master")
        os.kill(replica.pid, signal.SIGCONT)

        assert sum(map(len, here.read(place, 0, 2, [], replica=True))) == 2


def test_a_spark_stream_and_sink_carry_on_when_the_master_changes(
    spark: SparkSession, node_factory: NodeFactory, tmp_path: Path
) -> None:
    """P1, P2: every row once, though masters die under the reading and the writing."""
    pair = make_pair(node_factory, tmp_path, settings={"TERN_REPLICA_LOST": "continue"})
    seen: Batches = []
    with connect(pair.url, app="shop") as mq:
        sent = feed(mq, 0)
        reading = start(spark, pair.meta, tmp_path / "c", seen, subscribe="orders", ends=False)
        source = spark.readStream.format("tern").options(
            url=pair.url, subscribe="orders", startingOffsets="earliest"
        )
        writing = (
            source.load()
            .select("body")
            .writeStream.format("tern")
            .options(url=pair.url, topic="copies", checkpointLocation=str(tmp_path / "sink"))
            .trigger(processingTime="200 milliseconds")
            .start()
        )
        try:
            wait_until(lambda: sum(map(len, seen)) >= sent, "the first rows", seconds=90)
            for _ in range(2):
                sent = feed(mq, sent)
                kill(pair)
                sent = feed(mq, sent)
                pair.wait_in_sync(2)
            wait_until(lambda: sum(map(len, seen)) >= sent, "all rows", seconds=90)
            wait_until(lambda: count(mq) >= sent, "all copies", seconds=90)
            assert reading.exception() is None and writing.exception() is None
        finally:
            for query in (reading, writing):
                query.stop()
        copies = Counter(message.body for message in mq.read("copies"))
    assert sum(map(len, seen)) == sent
    assert copies == Counter(b"%d" % number for number in range(sent))


def feed(mq: Client, sent: int) -> int:
    mq.send_many("orders", [b"%d" % (sent + number) for number in range(500)])
    return sent + 500


def count(mq: Client) -> int:
    try:
        return sum(1 for _ in mq.read("copies"))
    except TernError:
        return 0
