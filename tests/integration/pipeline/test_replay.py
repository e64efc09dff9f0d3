"""Archived messages once more: exactly once, in order, to a topic or to one group alone (P5)."""

import json
import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ternmq.core.errors import BadName, BadRequest, GroupNotFound
from ternmq.pipeline.archive.job import ArchiveJob, Archiver
from ternmq.pipeline.jobs.replay import Replayer, ReplayJob
from ternmq.pipeline.jobs.replay_writer import ReplayWriter
from ternmq.sync import connect
from ternmq.wire.messages.groups import Start
from tests.integration.processes import COMMAND, Node
from tests.waiting import wait_until


def archived(spark: SparkSession, node: Node, target: Path, count: int) -> list[str]:
    """Messages of `orders`, their archive; returns their ids."""
    with connect(node.url, app="shop") as mq:
        ids: list[str] = []
        for first in range(0, count, 1_000):
            bodies = [b"%d" % n for n in range(first, min(first + 1_000, count))]
            sent = mq.send_many("orders", bodies, key="k", tag="t", properties={"n": 7})
            ids += [sent[at].id for at in range(len(sent))]
    Archiver(spark, ArchiveJob(url=node.url, target=str(target))).run_once(lambda _: None)
    return ids


def job(node: Node, target: Path, **options: Any) -> ReplayJob:
    return ReplayJob(url=node.url, archive=str(target), topic="orders", **options)


def run(spark: SparkSession, wanted: ReplayJob) -> int:
    replayer = Replayer(spark, wanted)
    replayer.count(dry_run=False)
    return replayer.run(lambda _: None, lambda: False)


def stored(node: Node, topic: str) -> list[Any]:
    with connect(node.url) as mq:
        end = mq.admin.seek(topic, Start(at="latest")).end
        return list(mq.read(topic, start="earliest", end=end))


def test_messages_come_into_another_topic_as_they_were(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    """P5: ids, keys, times and order; a dry run only counts; done is done."""
    ids = archived(spark, node, tmp_path / "a", 3_000)
    before = stored(node, "orders")
    wanted = job(node, tmp_path / "a", to_topic="again", where="sequence % 3 = 0")

    counted = Replayer(spark, wanted).count(dry_run=True)
    with connect(node.url) as mq:
        assert "again" not in [topic.name for topic in mq.admin.topics()]
    assert run(spark, wanted) == 1_000
    assert run(spark, wanted) == 0, "the same call once more sends nothing"

    assert (counted.messages, counted.begun, counted.done) == (1_000, False, False)
    got = stored(node, "again")
    assert [message.id for message in got] == ids[::3]
    for copy, original in zip(got, before[::3], strict=True):
        assert (copy.body, copy.key, copy.tag) == (original.body, original.key, original.tag)
        assert (copy.born_at, copy.app) == (original.born_at, original.app)
    assert got[1].properties == {"n": "7", "%topic": "orders", "%replayed": "3"}
    assert run(spark, job(node, tmp_path / "a", to_topic="again", name="more")) == 3_000


def test_one_group_alone_gets_what_the_cluster_no_longer_has(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    """P5, J14: into the group's lane; the originals are gone, no other group sees a thing."""
    ids = archived(spark, node, tmp_path / "a", 50)
    with connect(node.url) as mq:
        mq.admin.delete_topic("orders")
        mq.admin.create_topic("orders")
        for group in ("billing", "other"):
            mq.admin.create_group("orders", group, Start(at="latest"))

    assert run(spark, job(node, tmp_path / "a", group="billing")) == 50

    with connect(node.url) as mq:
        with mq.consumer("orders", group="billing") as consumer:
            got = []
            for message in consumer:
                message.ack()
                got.append((message.id, message.topic))
                if len(got) == 50:
                    break
            consumer.flush()
        totals = {(line.group, line.lane): line.total for line in mq.admin.ledger()}
    assert got == [(id, "orders") for id in ids]
    assert totals[("billing", "private")] == 50
    assert totals[("other", "topic")] == 0


@pytest.mark.long
def test_a_replay_that_dies_at_any_moment_goes_on_and_sends_nothing_twice(
    spark: SparkSession, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P5: before a batch, and after it was stored and before anybody knew."""
    ids = archived(spark, node, tmp_path / "a", 1_000)
    wanted = job(node, tmp_path / "a", to_topic="again", where="sequence >= 100", rate=1_000)
    send, turn = ReplayWriter.send, 0

    async def dying(self: ReplayWriter, *given: Any, **named: Any) -> None:
        nonlocal turn
        turn += 1
        if turn % 3 == 1:
            raise ConnectionError("dead before")
        await send(self, *given, **named)
        if turn % 3 == 2:
            raise ConnectionError("dead after")

    with monkeypatch.context() as patched:
        patched.setattr(ReplayWriter, "send", dying)
        patched.setattr(time, "sleep", lambda _: None)
        for _ in range(4):
            with pytest.raises(ConnectionError):
                run(spark, wanted)
        node.kill()
        node.start()

    assert 0 < len(stored(node, "again")) < 900
    left = Replayer(spark, wanted).count(dry_run=True)
    assert left.begun and left.messages == 900 - len(stored(node, "again"))
    run(spark, wanted)
    assert [message.id for message in stored(node, "again")] == ids[100:]


@pytest.mark.parametrize(
    ("choice", "error", "said"),
    [
        ({"to_topic": "x", "where": "colour = 3"}, BadRequest, "--where 'colour = 3'"),
        ({"to_topic": "x", "where": "rand() < 0.5"}, BadRequest, "chooses others each time"),
        ({"to_topic": "x", "where": "int(tag) = 1"}, BadRequest, "Spark cannot choose"),
        ({"group": "nobody"}, GroupNotFound, "nobody"),
        ({"to_topic": "%dead.x"}, BadName, "%dead.x"),
        ({"to_topic": "x", "group": "y"}, BadRequest, "either --to-topic TOPIC or --group GROUP"),
    ],
)
def test_a_bad_choice_is_one_clear_line(
    bad: "tuple[SparkSession, Node, Path]", choice: Any, error: Any, said: str
) -> None:
    spark, node, target = bad

    with pytest.raises(error, match=said):
        Replayer(spark, job(node, target, **choice)).count(dry_run=True)


@pytest.fixture(scope="module")
def bad(
    spark: SparkSession, shared_node: Node, tmp_path_factory: pytest.TempPathFactory
) -> tuple[SparkSession, Node, Path]:
    target = tmp_path_factory.mktemp("bad") / "a"
    with connect(shared_node.url, app="shop") as mq:
        mq.send_many("orders", [b"x"] * 5, tag="t")
    archive = ArchiveJob(url=shared_node.url, target=str(target), topics=("orders",))
    Archiver(spark, archive).run_once(lambda _: None)
    return spark, shared_node, target


def test_a_name_belongs_to_one_choice(bad: "tuple[SparkSession, Node, Path]") -> None:
    spark, node, target = bad
    run(spark, job(node, target, to_topic="named", name="fix"))

    with pytest.raises(BadRequest, match="began with another choice"):
        Replayer(spark, job(node, target, to_topic="elsewhere", name="fix"))
    with pytest.raises(BadRequest, match="holds nothing of topic 'bills'; it has: orders"):
        Replayer(spark, ReplayJob(url=node.url, archive=str(target), topic="bills", to_topic="x"))


@pytest.mark.long
@pytest.mark.timeout(700)
def test_kills_of_the_job_and_the_node_neither_lose_nor_double_a_message(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    """P5: kill -9 of driver and JVM in the middle, twice, and of the node once."""
    ids = archived(spark, node, tmp_path / "a", 20_000)
    command = [
        *COMMAND,
        "pipeline",
        "replay",
        "--from-archive",
        str(tmp_path / "a"),
        "--topic",
        "orders",
        "--to-topic",
        "again",
        "--rate",
        "3000/s",
        "--yes",
        "--json",
        "--url",
        node.url,
        "--master",
        "local[2]",
    ]
    running: list[subprocess.Popen[str]] = []
    try:
        for part in (3_000, 8_000, 12_000):
            running.append(
                subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True)
            )
            wait_until(partial(reached, node, part), f"{part} messages", seconds=180)
            if part < 12_000:
                os.killpg(running[-1].pid, signal.SIGKILL)
                running[-1].communicate()
        node.kill()
        node.start()
        told, _ = running[-1].communicate(timeout=180)
    finally:
        for process in running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()

    assert running[-1].returncode == 0
    assert [message.id for message in stored(node, "again")] == ids
    assert 0 < json.loads(told)["sent"] <= 20_000 - 8_000


def reached(node: Node, count: int) -> bool:
    with connect(node.url) as mq:
        there = "again" in [topic.name for topic in mq.admin.topics()]
        return there and mq.admin.seek("again", Start(at="latest")).end >= count
