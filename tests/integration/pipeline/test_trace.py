"""Trace and audit: what happened to messages, and what is still owed (P4, R23)."""

import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from ternmq.pipeline.archive.job import ArchiveJob, Archiver
from ternmq.pipeline.cluster import cluster
from ternmq.pipeline.jobs.trace import TraceJob, trace, write
from ternmq.pipeline.positions import DELIVERIES, TopicPlace
from ternmq.pipeline.source.delivery_rows import events
from ternmq.storage.pull.record import PullKind
from ternmq.sync import connect
from ternmq.wire.messages.groups import Start
from tests.integration.processes import COMMAND, Node
from tests.waiting import wait_until


def work(node: Node) -> None:
    """Two groups: one settles everything in its own way, one leaves 30 of 100 behind."""
    with connect(node.url, app="shop") as mq:
        mq.send_many("orders", [b"%d" % n for n in range(100)])
        with mq.consumer("orders", group="billing") as consumer:
            left = 100
            for message in consumer:
                if message.sequence % 10 == 3 and message.attempt == 1:
                    message.retry(after=0)
                    continue
                if message.sequence == 50:
                    message.reject("bad")
                else:
                    message.ack()
                left -= 1
                if not left:
                    break
            consumer.flush()
        with mq.consumer("orders", group="mail", prefetch=10) as consumer:
            for message in consumer:
                if message.sequence >= 70:
                    break
                message.ack()
            consumer.flush()
        mq.admin.create_group("orders", "late", Start(at="latest"))


def owed(tables: dict[str, list[dict[str, Any]]]) -> dict[str, int]:
    return {row["group"]: row["never_acked"] for row in tables["audit"]}


def test_the_audit_agrees_with_the_ledger(spark: SparkSession, node: Node, tmp_path: Path) -> None:
    """P4: from the cluster, and from an archive."""
    work(node)
    with connect(node.url) as mq:
        ledger = {
            line.group: line.ready + line.in_flight + line.waiting_retry
            for line in mq.admin.ledger("orders")
        }
    Archiver(spark, ArchiveJob(url=node.url, target=str(tmp_path / "a"))).run_once(lambda _: None)

    live = trace(spark, TraceJob(url=node.url, topics=("orders",)))
    archived = trace(spark, TraceJob(archive=str(tmp_path / "a"), topics=("orders",)))

    assert owed(live) == ledger == {"billing": 0, "mail": 30, "late": 0}
    assert owed(archived) == owed(live)
    [billing] = [row for row in live["latency"] if row["group"] == "billing"]
    assert (billing["messages"], billing["acked"], billing["dead"]) == (100, 99, 1)
    assert billing["again"] == 10 and billing["attempts_max"] == 2
    assert billing["total_p50_ms"] > 0
    assert live["backlog"][-1]["backlog"] in (0, 30)
    assert live["doubles"] == []
    [mail] = [row for row in live["audit"] if row["group"] == "mail"]
    assert mail["oldest"].utcoffset() == timedelta(0), "readers elsewhere must know the zone"


def test_the_report_is_one_page_that_needs_nothing(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    work(node)
    tables = trace(spark, TraceJob(url=node.url))

    page = write(spark, tables, tmp_path / "out", "<script>").read_text(encoding="utf-8")

    assert "30 deliveries are still owed" in page
    assert "&lt;script&gt;" in page and "<script" not in page
    assert "http" not in page
    assert "<polyline" in page
    assert (tmp_path / "out" / "latency.parquet").exists()


def test_a_reset_group_owes_what_it_was_put_back_to(spark: SparkSession, node: Node) -> None:
    work(node)
    with connect(node.url) as mq:
        mq.admin.reset_group("orders", "billing", Start(at="sequence", value=60))

    assert owed(trace(spark, TraceJob(url=node.url)))["billing"] == 40


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "pipeline", "trace", "--archive", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 2
    assert "there is no archive at" in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_the_last_acks_are_told_though_nothing_comes_after_them(shared_node: Node) -> None:
    """J4, P4: they reach the disk by themselves; else the audit would wait for the next message."""
    topic = f"last-{uuid4().hex[:8]}"
    with connect(shared_node.url, app="shop") as mq:
        mq.send(topic, b"the only one")
        with mq.consumer(topic, group="billing") as consumer:
            next(consumer).ack()
            consumer.flush()
    found, place = cluster(shared_node.url), TopicPlace(DELIVERIES, "main")

    def acked() -> bool:
        bounds = found.bounds(place)
        assert bounds is not None
        for page in found.read_deliveries(place, *bounds, lambda _: None):
            ours = {each.group_id for each in page.names if each.topic == topic}
            records = [event.record for event in events(page)]
            if any(each.kind == PullKind.ACKED and each.group_id in ours for each in records):
                return True
        return False

    wait_until(acked, "the ack among the delivery records")
