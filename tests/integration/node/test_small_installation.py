"""`pip install ternmq` is the client and small; a node does without uvloop and Linux."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ternmq
from tests.integration.processes import Node, free_ports
from tests.tidy.source import ROOT

PROGRAM = """
import sys
from tests.portable_machine import PACKAGES, hide
hide()
import ternmq
assert not {"numpy", "asyncio"} & set(sys.modules), "importing imports next to nothing"
import asyncio, logging

async def main(url):
    async with ternmq.connect(url, app="small") as mq:
        await mq.send("small.a", b"x" * 300, properties={"amount": 12}, tag="vip")
        await mq.send_many("small.a", [b"y" * 300] * 50)
        rows = mq.read("small.a", start="earliest", filter="amount > 10")
        found = [message.body[:1] async for message in rows]
        assert found == [b"x"], found
        async with mq.consumer("small.a", group="g", start="earliest") as consumer:
            got = 0
            async for message in consumer:
                message.ack()
                got += 1
                if got == 51:
                    break
        [line] = await mq.admin.ledger("small.a")
        print("acked", line.acked)

asyncio.run(main(sys.argv[1]))
import ternmq.sync
with ternmq.sync.connect(sys.argv[1], app="small", codec="json") as mq:
    print("sync", mq.send("small.b", {"a": 1}).topic)
with ternmq.sync.connect(sys.argv[1], app="small", compression="lz4") as mq:
    try:
        mq.send("small.b", b"z" * 5_000)
    except ternmq.BadConfig as error:
        print(error)
print("imported", sorted(set(PACKAGES) & set(sys.modules)))
"""

NODE = """
import sys
from tests.portable_machine import hide
hide(["uvloop"])
from ternmq.cli.main import run
sys.argv = ["tern", *sys.argv[1:]]
run()
"""


def _python(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_client_needs_nothing_but_its_five_packages(shared_node: Node) -> None:
    done = _python(PROGRAM, shared_node.url)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "acked 51",
        "sync small.b",
        "bodies in LZ4 need a package: pip install 'ternmq[lz4]'",
        "imported []",
    ]


@pytest.mark.timeout(900)
def test_the_tests_of_clients_and_files_pass_without_uvloop_and_linux() -> None:
    folders = ["tests/unit/client", "tests/unit/sync", "tests/unit/storage/files"]
    nodes = ["tests/integration/client/test_send.py", "tests/integration/client/test_consume.py"]
    options = ["-q", "-p", "tests.portable_machine", "-p", "no:cacheprovider", "-m", "not long"]
    # The loop of a thread that a fork left behind: asyncio's complains of it, uvloop's does not.
    quiet = ["-W", "ignore::pytest.PytestUnraisableExceptionWarning"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *quiet, *folders, *nodes],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-5_000:]


def test_commands_of_a_client_alone_say_in_one_line_what_to_install() -> None:
    code = "import sys; from tests.portable_machine import hide; hide(); import tern_start; "
    done = _python(code + "sys.argv = ['ternmq', 'up']; tern_start.run()")

    assert done.returncode == 2
    assert done.stderr.strip() == (
        "error: this is the client alone; servers and commands come with pip install"
        " 'ternmq[server]', or at once: uvx 'ternmq[server]' up"
    )


def test_a_node_without_uvloop_and_linux_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    command = [sys.executable, "-c", NODE, "up", "--no-console", "--ports", str(free_ports())]
    command += ["--data-dir", str(tmp_path / "data")]
    for life in range(2):
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                ready = next(line for line in process.stdout if line.startswith("ready "))
                with ternmq.sync.connect(ready.split()[1], app="test") as mq:
                    if life == 0:
                        mq.send_many("kept", [b"%d" % row for row in range(2_000)])
                        os.kill(process.pid, signal.SIGKILL)
                        continue
                    bodies = [message.body for message in mq.read("kept", start="earliest")]
                    assert sorted(map(int, bodies)) == list(range(2_000))
            finally:
                process.kill()
