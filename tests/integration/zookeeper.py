"""A real ZooKeeper server for tests: Debian's package, on a free port in its own folder.

What is not installed is skipped by name; `make test` installs it when run as root.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.processes import free_ports
from tests.waiting import wait_until

JAR = Path("/usr/share/java/zookeeper.jar")
START_SECONDS_MAX = 60.0


@dataclass(slots=True)
class ZooKeeper:
    """One server; can be killed and started again on the same data."""

    home: Path
    port: int
    made: int = 0
    _process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        config = self.home / "zoo.cfg"
        config.write_text(
            f"dataDir={self.home / 'data'}\nclientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\ntickTime=500\nadmin.enableServer=false\n"
            "4lw.commands.whitelist=ruok\n"
        )
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "java",
                    "-Xmx128m",
                    "-XX:TieredStopAtLevel=1",
                    "-cp",
                    str(JAR),
                    "org.apache.zookeeper.server.ZooKeeperServerMain",
                    str(config),
                ],
                stdout=log,
                stderr=log,
                cwd=self.home,
            )
        wait_until(self._answers, f"ZooKeeper, see {self.home / 'log'}", seconds=START_SECONDS_MAX)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.home / "log").read_text()[-4_000:]
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as asked:
                asked.sendall(b"ruok")
                return asked.recv(4) == b"imok"
        except OSError:
            return False

    def kill(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(20)

    def url(self) -> str:
        """A new, empty registry."""
        self.made += 1
        return f"zookeeper://127.0.0.1:{self.port}/tern-{self.made}"


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeper]:
    if not JAR.exists() or shutil.which("java") is None:
        pytest.skip("ZooKeeper is not installed (apt-get install zookeeper)")
    home = Path(tempfile.mkdtemp(prefix="tern-zookeeper-"))
    server = ZooKeeper(home, free_ports())
    try:
        server.start()
        yield server
    finally:
        if server._process is not None and server._process.poll() is None:
            server.kill()
        shutil.rmtree(home, ignore_errors=True)
