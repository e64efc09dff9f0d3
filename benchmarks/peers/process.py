"""Server processes of the peers: free ports, start, wait until they answer, stop, CPU of the tree.

Each server runs in its own session, so that stop reaches everything it forked; nothing else on the
machine is ever signalled. All listeners are told to bind to loopback only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_STOP_SECONDS = 8.0
CACHE = Path(__file__).resolve().parent.parent / ".cache"
"""Where `install` keeps downloaded servers; not in git."""


class PeerFailed(Exception):
    """A peer's server did not start, or ended by itself."""


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listened on a moment ago, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def port_answers(port: int) -> bool:
    """Whether something accepts connections on this loopback port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.5).close()
    except OSError:
        return False
    return True


class ServerProcess:
    """One server process and what it forked."""

    def __init__(
        self, command: list[str], directory: Path, env: Mapping[str, str] | None = None
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / "server.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=directory,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The root of the process tree."""
        return self._process.pid

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Return once `ready()`; raise with the end of the log if the server ends or is late."""
        deadline = time.monotonic() + seconds
        while not ready():
            if self._process.poll() is not None:
                raise PeerFailed(f"server ended with {self._process.returncode}: {self._tail()}")
            if time.monotonic() > deadline:
                raise PeerFailed(f"server not ready in {seconds:.0f} s: {self._tail()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """TERM to the whole session, KILL after a while; returns when the root is gone."""
        for signum, patience in ((signal.SIGTERM, _STOP_SECONDS), (signal.SIGKILL, _STOP_SECONDS)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signum)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
                if not _group_alive(self._process.pid):
                    return

    def _tail(self) -> str:
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        return " | ".join(text.strip().splitlines()[-4:])[-600:]


def _group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def tree_cpu_seconds(roots: Iterable[int]) -> float:
    """CPU seconds (user and system) of these processes, their descendants and reaped children."""
    stats = _all_stats()
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in stats.items():
        children.setdefault(parent, []).append(pid)
    total = 0
    waiting = list(roots)
    seen: set[int] = set()
    while waiting:
        pid = waiting.pop()
        if pid in seen or pid not in stats:
            continue
        seen.add(pid)
        total += stats[pid][1]
        waiting.extend(children.get(pid, []))
    return total / _TICKS_PER_SECOND


def _all_stats() -> dict[int, tuple[int, int]]:
    """(parent, CPU ticks) of every process; processes that end meanwhile are left out."""
    stats: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue
        # The command name may hold spaces and parentheses: fields count from its last parenthesis.
        fields = text[text.rindex(")") + 2 :].split()
        stats[int(entry.name)] = (int(fields[1]), sum(int(field) for field in fields[11:15]))
    return stats
