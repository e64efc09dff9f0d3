"""Starts `tern` processes that need not import anything: forks of one process that has.

Importing is most of what a start costs (1.3 s of CPU for a node, 0.4 s without), and integration
tests start a thousand nodes and commands. The server is this file, run as a process of its own: it
imports TernMQ and waits. For each request it forks; the fork takes the descriptors, environment and
folder that it was sent and calls what the `tern` script calls. It is a process like any other: it
has a pid, can be killed, stopped and traced, and shares nothing with the test. `ForkedProcess` is
the test's side of it, with the methods of `subprocess.Popen` that tests use.

Nodes with a `prefix`, servers of `tern cluster`, examples and the tests of `tern up` start as they
do for people.
"""

import gc
import importlib
import json
import os
import pkgutil
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from ternmq.cli.main import run

REQUEST_SIZE_MAX = 1 << 20
DESCRIPTORS_MAX = 256
PACKAGES = ("broker", "cli", "delay", "meta", "node", "replication", "storage", "sync")
LATE = (
    "ternmq.cli.jobs",
    "ternmq.cli.processes",
)  # Spark, databases: who needs them, imports them.


class ForkedProcess:
    """A `tern` process that the server forked."""

    def __init__(self, pid: int, told: int, arguments: Sequence[str]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._told = told
        self._arguments = arguments
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(list(self._arguments), timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._told], [], [], timeout)[0]:
                said = os.read(self._told, 100)
                os.close(self._told)
                assert said, "the fork server is gone"
                self.returncode = int(said)
            return self.returncode


class ForkServer:
    """The test's side of the server."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.fork_server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**environment, "OPENBLAS_NUM_THREADS": "1"},  # A thread would not be forked.
                cwd=Path(__file__).parents[2],
            )

    def start(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        descriptors: tuple[int, int, int],
    ) -> ForkedProcess:
        """Run `tern` with these arguments; the descriptors are its stdin, stdout and stderr."""
        told, tell = os.pipe()
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": str(Path.cwd()),
        }
        try:
            with self._lock:
                data = json.dumps(request).encode()
                socket.send_fds(self._socket, [data], [*descriptors, tell])
                pid = self._socket.recv(100)
                assert pid, "the fork server could not start, or is gone: see stderr"
        finally:
            os.close(tell)
        return ForkedProcess(int(pid), told, arguments)

    def close(self) -> None:
        self._socket.close()
        self._process.wait(10)


@cache
def fork_server() -> ForkServer:
    """The one of this process; it ends with it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TERN_")}
    return ForkServer(kept)


# The server's side.


def import_everything() -> None:
    for name in PACKAGES:
        package = importlib.import_module(f"ternmq.{name}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.startswith(LATE):
                importlib.import_module(found.name)
    for name in ("uvloop", "sqlalchemy.dialects.sqlite"):
        importlib.import_module(name)
    sys.argv = ["tern", "--version"]
    with suppress(SystemExit):  # What the command line imports when it is first used.
        run()
    gc.freeze()


def serve(control: socket.socket) -> "dict[str, Any] | None":
    """Fork until the test's side closes. Returns in each fork, with what was asked of it."""
    running = selectors.DefaultSelector()
    running.register(control, selectors.EVENT_READ)
    while True:
        for ready, _ in running.select():
            if ready.fileobj is control:
                data, descriptors, _, _ = socket.recv_fds(control, REQUEST_SIZE_MAX, 4)
                if not data:
                    return None
                pid = os.fork()
                if pid == 0:
                    running.close()
                    control.close()  # At the end its number would be another file's.
                    become(descriptors)
                    return dict(json.loads(data))
                control.send(str(pid).encode())
                for descriptor in descriptors[:3]:
                    os.close(descriptor)
                running.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, descriptors[3]))
            else:
                pid, tell = ready.data
                running.unregister(ready.fileobj)
                os.close(ready.fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with suppress(BrokenPipeError):  # Nobody waits for it.
                    os.write(tell, str(code).encode())
                os.close(tell)


def become(descriptors: Sequence[int]) -> None:
    """In the fork: nothing of the server is left."""
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, DESCRIPTORS_MAX)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    import_everything()
    request = serve(control)
    if request is None:
        return
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = ["tern", *request["arguments"]]
    run()


if __name__ == "__main__":
    main()
