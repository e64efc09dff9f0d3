"""Celery's workers and clients on a real node: results, ETAs, retries, kill -9, control."""

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ternmq import sync
from tests.integration.processes import Node, NodeFactory, clean_environment
from tests.waiting import wait_until

MODULE = "tests.integration.celery.shop_tasks"


class Worker:
    """A `celery worker` process."""

    def __init__(self, node: Node, name: str, log: Path) -> None:
        self.log = log
        with log.open("ab") as file:
            options = ["--pool", "solo", "--loglevel", "INFO", "-n", f"{name}@here"]
            self.process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", MODULE, "worker", *options],
                env=clean_environment({"TERN_URL": node.url}),
                stdout=file,
                stderr=file,
            )

    def wait_ready(self) -> "Worker":
        wait_until(lambda: b" ready." in self.log.read_bytes(), "the worker is ready", seconds=60)
        return self

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(10)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


def close(tasks: Any) -> None:
    """Celery leaves its connections to the garbage collector."""
    with contextlib.suppress(AttributeError):  # It was never started.
        tasks.app.backend.result_consumer.stop()
    tasks.app.pool.force_close_all()
    tasks.app.close()


@pytest.fixture
def tasks(node: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("TERN_URL", node.url)
    sys.modules.pop(MODULE, None)
    module = importlib.import_module(MODULE)
    yield module
    close(module)


@pytest.fixture
def worker(node: Node, tmp_path: Path) -> Iterator[Worker]:
    found = Worker(node, "one", tmp_path / "worker.log").wait_ready()
    yield found
    found.end()


def test_tasks_run_and_their_results_come_back(node: Node, tasks: Any, worker: Worker) -> None:
    results = [tasks.add.delay(number, 1) for number in range(20)]

    assert [result.get(timeout=30) for result in results] == list(range(1, 21))
    with sync.connect(node.url) as mq:
        wait_until(lambda: mq.admin.ledger("celery", "celery")[0].acked == 20)
        [found] = mq.find("celery", key=results[7].id)
        assert found.message.key == results[7].id


def test_an_eta_waits_at_the_delay_server_and_in_no_worker(
    node: Node, tasks: Any, worker: Worker
) -> None:
    far = tasks.now.apply_async(eta=datetime.now(UTC) + timedelta(days=700))
    began = time.time()
    soon = tasks.now.apply_async(countdown=1)

    with sync.connect(node.url) as mq:
        waiting = [row.key for row in mq.admin.delays.rows(topic="celery")]
        assert far.id in waiting
        assert mq.admin.delays.status() is not None
    assert soon.get(timeout=30) - began >= 1
    assert tasks.second_time.delay(5).get(timeout=30) == 5  # Its retry has a countdown.


def test_a_killed_workers_task_comes_back_in_seconds(
    node: Node, tasks: Any, worker: Worker, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.touch()
    result = tasks.hang.delay(str(notes), 1.0)
    wait_until(lambda: len(notes.read_text().splitlines()) == 1, "it has begun")
    worker.kill()
    other = Worker(node, "two", tmp_path / "other.log").wait_ready()
    try:
        assert result.get(timeout=60) is None
    finally:
        other.end()

    first, second = notes.read_text().splitlines()
    assert first != second


def test_workers_are_asked_and_answer(tasks: Any, worker: Worker) -> None:
    inspect = tasks.app.control.inspect(timeout=10, limit=1)

    assert inspect.ping() == {"one@here": {"ok": "pong"}}
    assert "celery" in str(tasks.app.control.inspect(timeout=10, limit=1).active_queues())


def test_a_rejected_task_is_a_dead_letter(node: Node, tasks: Any, worker: Worker) -> None:
    sent = tasks.refuse.delay()
    with sync.connect(node.url) as mq:
        wait_until(lambda: mq.admin.ledger("celery", "celery")[0].dead == 1, "it is dead")
        [letter] = list(mq.read("%dead.celery"))
        assert letter.key == sent.id


def test_a_broker_that_restarts_loses_no_task(
    node_factory: NodeFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = node_factory()
    monkeypatch.setenv("TERN_URL", node.url)
    sys.modules.pop(MODULE, None)
    tasks = importlib.import_module(MODULE)
    worker = Worker(node, "one", tmp_path / "worker.log").wait_ready()
    try:
        before = [tasks.add.delay(number, 0) for number in range(10)]
        node.kill()
        node.start()
        after = [tasks.add.delay(number, 0) for number in range(10, 20)]
        results = [result.get(timeout=60) for result in before + after]
    finally:
        worker.end()
        close(tasks)

    assert results == list(range(20))


def test_waiting_prefetch_and_unacked_messages_go_back_when_a_worker_stops(
    node: Node, tasks: Any, worker: Worker
) -> None:
    """What a stopping worker has not begun is another one's at once, and not counted."""
    worker.end()
    sent = [tasks.add.delay(1, number) for number in range(5)]
    with sync.connect(node.url) as mq, mq.consumer("celery", group="celery") as consumer:
        keys = {next(iter(consumer)).key for _ in sent}

    assert keys == {result.id for result in sent}
