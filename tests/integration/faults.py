"""Disk faults for a running node: strace makes its system calls fail, a limit makes them short.

`injected` attaches strace to every thread of the node and takes it away again at the end of the
block, so a test can see the fault come and go (research/peers.md 4.4). `-P` narrows a fault to one
file. Needs root and strace; `needs_strace` marks and skips the tests that use it.
"""

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ternmq.storage.files.disk import RealDisk, data_end
from tests.integration.processes import Node
from tests.waiting import wait_until

WRITES = "pwritev,pwritev2"
ATTACH_SECONDS_MAX = 20.0
F = TypeVar("F", bound=Callable[..., Any])


def needs_root(test: F) -> F:
    """Marked `root`, and skipped with the reason where that is missing."""
    skip = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts or strace")
    marked: F = pytest.mark.root(skip(test))
    return marked


def needs_strace(test: F) -> F:
    skip = pytest.mark.skipif(
        shutil.which("strace") is None, reason="strace is not installed: apt-get install strace"
    )
    marked: F = skip(test)
    return needs_root(marked)


def message_log(node: Node) -> Path:
    """The active segment of the message log."""
    return sorted((node.data_dir / "broker" / "message").glob("*.log"))[-1]


def pull_log(node: Node) -> Path:
    return sorted((node.data_dir / "broker" / "pull").glob("*.log"))[-1]


@contextmanager
def injected(node: Node, fault: str, *, paths: Sequence[Path] = ()) -> Iterator[Path]:
    """`fault` as strace's `inject=` takes it; yields the file that tells which calls were hit."""
    calls = fault.split(":", 1)[0]
    said = node.output_dir / "strace.err"
    trace = node.output_dir / "strace.out"
    trace.unlink(missing_ok=True)
    command = ["strace", "-f", "-p", str(node.pid), "-o", str(trace)]
    command += ["-e", f"trace={calls}", "-e", f"inject={fault}"]
    for path in paths:
        command += ["-P", str(path)]
    with said.open("wb") as err:
        strace = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=err)
    try:

        def attached() -> bool:
            assert strace.poll() is None, said.read_text()
            return "attached" in said.read_text()

        wait_until(attached, "strace attached", seconds=ATTACH_SECONDS_MAX)
        yield trace
    finally:
        if strace.poll() is None:
            strace.send_signal(signal.SIGINT)
        strace.wait(ATTACH_SECONDS_MAX)


@contextmanager
def file_size_limit(node: Node, size: int) -> Iterator[None]:
    """No file of the node may grow beyond `size`: a write across it is short, the next one fails
    with EFBIG. (The interpreter ignores the signal that comes with it.)"""
    before = resource.prlimit(node.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, before)


def log_size(path: Path) -> int:
    """Where the records of a log file end; behind them a running server keeps room for more."""
    return data_end(RealDisk().open(path, create=False))
