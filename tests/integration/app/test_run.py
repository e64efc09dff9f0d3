"""`tern run`: workers that share the load, die, drain and follow changes of their source."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ternmq import sync
from tests.integration.processes import Node, clean_environment
from tests.waiting import wait_until

APP = """
import os, pathlib
import ternmq

app = ternmq.App(os.environ["TERN_URL"], app="shop")

@app.subscriber({topic!r}, group="billing", concurrency=4, publish={topic!r} + ".billed")
def bill(number: int) -> int:
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{version} {{os.getpid()}} {{number}}\\n")
    return number
"""


class Running:
    """A `tern run`, the folder of its app, and what its handlers noted."""

    def __init__(self, node: Node, folder: Path, topic: str) -> None:
        self.folder = folder
        self.topic = topic
        self.notes = folder / "notes.txt"
        self.notes.touch()
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
        self._environment = clean_environment({"TERN_URL": node.url, "NOTES": str(self.notes)})
        self.process: subprocess.Popen[str] | None = None

    def write(self, version: str) -> None:
        (self.folder / "shop.py").write_text(APP.format(topic=self.topic, version=version))

    def start(self, *arguments: str, target: str = "shop:app") -> None:
        command = ["run", target, "--health", str(self.port), "--app-dir", str(self.folder)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ternmq.cli.main", *command, *arguments],
            env=self._environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    def noted(self) -> list[list[str]]:
        return [line.split() for line in self.notes.read_text().splitlines()]

    def asked(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def wait_ready(self) -> None:
        wait_until(lambda: self.asked("/ready") == 200, "ready", seconds=40)

    def wait_noted(self, count: int) -> None:
        wait_until(lambda: len(self.noted()) >= count, f"{count} notes", seconds=40)

    def stop(self) -> str:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=40)
        return said


@pytest.fixture
def running(shared_node: Node, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    topic = re.sub(r"\W", "-", request.node.name)[:60]
    found = Running(shared_node, tmp_path, topic)
    found.write("one")
    yield found
    if found.process is not None and found.process.poll() is None:
        found.process.kill()
        found.process.wait(10)


def test_one_process_runs_the_app_answers_health_checks_and_drains(
    shared_node: Node, running: Running
) -> None:
    with sync.connect(shared_node.url, codec="json") as mq:
        mq.send_many(running.topic, [1, 2, 3])
        running.start()
        running.wait_ready()
        running.wait_noted(3)
        assert running.asked("/live") == 200
        running.stop()
        billed = [message.value for message in mq.read(f"{running.topic}.billed")]

    assert sorted(billed) == [1, 2, 3]
    assert running.process is not None
    assert running.process.returncode == 0


def test_workers_share_the_load_and_one_that_is_killed_comes_back(
    shared_node: Node, running: Running
) -> None:
    running.start("--workers", "2")
    running.wait_ready()
    with sync.connect(shared_node.url, codec="json") as mq:
        sent = 0

        def both_worked() -> bool:
            nonlocal sent
            mq.send(running.topic, sent)
            sent += 1
            return len({pid for _, pid, _ in running.noted()}) == 2

        wait_until(both_worked, "both have worked", every=0.05)
        first = int(running.noted()[0][1])
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: running.asked("/ready") == 503, "one is missing")
        running.wait_ready()
        mq.send(running.topic, sent)
        wait_until(
            lambda: {int(number) for _, _, number in running.noted()} == set(range(sent + 1)),
            "every message is handled",
        )
    said = running.stop()

    assert f"worker 1 (pid {first}) was ended by SIGKILL" in said or (
        f"worker 2 (pid {first}) was ended by SIGKILL" in said
    )
    assert running.process is not None
    assert running.process.returncode == 0


def test_a_change_of_the_source_starts_the_workers_again(
    shared_node: Node, running: Running
) -> None:
    running.start("--reload")
    running.wait_ready()
    with sync.connect(shared_node.url, codec="json") as mq:
        mq.send(running.topic, 1)
        running.wait_noted(1)
        running.write("another version")

        def new_one_works() -> bool:
            mq.send(running.topic, 2)
            return running.noted()[-1][0] == "another"

        wait_until(new_one_works, "the new source runs", every=0.1, seconds=40)
    said = running.stop()

    assert "shop.py changed: starting again" in said


def test_a_program_that_is_wrong_ends_at_once_with_one_line(running: Running) -> None:
    running.start("--workers", "2", target="shop:application")
    assert running.process is not None
    _, said = running.process.communicate(timeout=60)

    assert running.process.returncode != 0
    assert "the module shop has no 'application'" in said
    assert "Traceback" not in said


def test_run_waits_for_servers_that_are_away(tmp_path: Path, running: Running) -> None:
    environment = clean_environment({"TERN_URL": "tern://127.0.0.1:9", "NOTES": str(running.notes)})
    running._environment = environment
    running.start()
    wait_until(lambda: running.asked("/live") == 200, "it lives", seconds=40)

    assert running.asked("/ready") == 503
    said = running.stop()
    assert "waits for its servers" in said
