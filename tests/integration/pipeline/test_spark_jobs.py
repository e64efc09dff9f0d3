"""Spark jobs as people see them: a bar, no noise, quicker starts (P7)."""

import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ternmq.pipeline.spark.stderr_filter import NOISE
from ternmq.sync import connect
from tests.integration.processes import COMMAND, Node, clean_environment

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

STARTED = """
from ternmq.pipeline.spark.session import spark_session
spark = spark_session("start", master="local[2]")
spark.range(1000).selectExpr("id % 7 AS k").groupBy("k").count().collect()
fields = open(f"/proc/{spark.sparkContext._gateway.proc.pid}/stat").read().split()
print(int(fields[13]) + int(fields[14]))
"""


def on_a_terminal(*arguments: str) -> tuple[str, str]:
    """(stdout, what the terminal on stderr got) of a `tern` command that succeeds."""
    terminal, stderr = pty.openpty()
    heard: list[bytes] = []

    def listen() -> None:
        while True:
            try:
                data = os.read(terminal, 65_536)
            except OSError:  # Nobody has the other side any more.
                return
            if not data:
                return
            heard.append(data)

    listening = threading.Thread(target=listen)
    job = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=clean_environment({"TERM": "xterm", "COLUMNS": "120"}),
    )
    os.close(stderr)
    listening.start()
    out, _ = job.communicate(timeout=300)
    listening.join(10)
    os.close(terminal)
    shown = b"".join(heard).decode("utf-8", "replace")
    assert job.returncode == 0, shown
    return out, shown


def test_every_job_has_a_bar_and_none_says_what_is_not_about_it(node: Node, tmp_path: Path) -> None:
    with connect(node.url, app="shop") as mq:
        mq.send_many("orders", [b"%d" % n for n in range(500)])
        with mq.consumer("orders", group="billing") as consumer:
            for seen, message in enumerate(consumer, start=1):
                message.reject("bad") if seen % 10 == 0 else message.ack()
                if seen == 500:
                    break
            consumer.flush()
    archive, where = str(tmp_path / "a"), ["--url", node.url, "--master", "local[2]"]
    jobs = {
        "archive": ["archive", "--to", archive, *where],
        "compact": ["compact", "--archive", archive, "--master", "local[2]"],
        "trace": ["trace", "--archive", archive, "--master", "local[2]"],
        "dead letters": ["dead-letters", *where],
        "replay": [
            "replay",
            "--from-archive",
            archive,
            "--topic",
            "orders",
            "--to-topic",
            "again",
            "--yes",
            *where,
        ],
    }
    for name, arguments in jobs.items():
        out, shown = on_a_terminal("pipeline", *arguments)
        assert out, name
        assert re.search(rf"{name}\s+.*[━╸╺]", shown), (name, shown)
        lines = [line.strip().encode() for line in shown.splitlines()]
        assert not [line for line in lines if NOISE.match(line)], (name, shown)


def test_a_warm_up_ends_leaves_one_file_and_halves_what_a_start_costs(tmp_path: Path) -> None:
    def cpu_of_a_start(cache: Path) -> int:
        done = subprocess.run(
            [sys.executable, "-c", STARTED],
            env=clean_environment({"TERN_CACHE": str(cache)}),
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        assert done.stderr == ""
        return int(done.stdout)

    cache = tmp_path / "cache"
    before = cpu_of_a_start(cache)
    done = subprocess.run(
        [*COMMAND, "pipeline", "warm-up"],
        env=clean_environment({"TERN_CACHE": str(cache)}),
        capture_output=True,
        text=True,
        check=True,
        timeout=500,
    )
    [made] = cache.iterdir()
    assert (done.stdout.strip(), done.stderr) == (str(made), "")
    assert cpu_of_a_start(cache) < 0.75 * before
