"""Who did what: one JSON object a line, in a file of its own beside the data.

Logins, refusals, and everything about operating, managing, the cluster and grants: when, who, from
where, what, to what, with which result. Never a body, a proof or a password. What comes in crowds
is summed (`audit_sums.py`): failed logins, refusals, and whatever one user does more than
`OF_ONE_MAX` times a minute are lines with how many there were, so nobody pushes the evidence out
with noise. Texts are cut. Lines are gathered on the loop and written by a thread; a full disk loses
lines and says so in the log, and never keeps a client waiting. A file of `FILE_SIZE_MAX` is kept as
`.1`, the one before as `.2`, and so on: `FILES_KEPT` in all.
"""

import asyncio
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from ternmq.core.log import get_logger
from ternmq.security.access.audit_sums import AuditSums, Line

FILE_SIZE_MAX = 64 * 1024 * 1024
FILES_KEPT = 8
OF_ONE_MAX = 1_000
"""Lines a minute of one user and kind."""
LINES_MAX = 20_000
"""Waiting to be written; more are counted only."""
LINES_SIZE_MAX = 8 * 1024 * 1024
TEXT_SIZE_MAX = 200
LIST_SIZE_MAX = 20
WRITE_AFTER_S = 0.2
LOOK_AT_SUMS_S = 15.0

log = get_logger()


def audit_file(server: str) -> str:
    """In the data directory; servers of one process have one each."""
    return f"audit-{server}.log"


class AuditLog:
    """The audit log of one server."""

    def __init__(self, path: Path, *, server: str, now_ms: Callable[[], int]) -> None:
        self._path = path
        self._server = server
        self._now_ms = now_ms
        self._lines: list[bytes] = []
        self._lines_size = 0
        self._left_out = 0
        self._crowds = AuditSums(at_once=1)
        self._busy = AuditSums(at_once=OF_ONE_MAX)
        self._writing: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sums_timer: asyncio.TimerHandle | None = None

    def note(self, event: str, *, who: str, address: str, result: str, **facts: Any) -> None:
        """One line; beyond so many of one user and kind a minute, part of a sum."""
        line = {"event": event, "who": who, "from": address, "result": result, **facts}
        # Without a user it is the address that is busy; ports are as many as one likes.
        key = (event, result, who or address, str(facts.get("command", "")))
        self._sum_up(key, line)

    def note_summed(self, event: str, *, who: str, address: str, result: str, **facts: Any) -> None:
        """The first at once; the others of a minute as one line with their number, after it."""
        line = {"event": event, "who": who, "from": address, "result": result, **facts}
        key = (event, result, who, address, str(facts.get("user", "")))
        busy = (event, result, who or address, "")
        for one in self._crowds.add(key, line, self._now_ms()):
            self._sum_up(busy, one)

    def _sum_up(self, key: tuple[str, ...], line: Line) -> None:
        for one in self._busy.add(key, line, self._now_ms()):
            self._put(one)
        self._look_later()

    def _put(self, line: Line) -> None:
        facts = {name: _cut(value) for name, value in line.items()}
        made = msgspec.json.encode({"at_ms": self._now_ms(), "server": self._server, **facts})
        if len(self._lines) >= LINES_MAX or self._lines_size + len(made) > LINES_SIZE_MAX:
            self._left_out += 1
            return
        self._lines.append(made)
        self._lines_size += len(made)
        self._write_later()

    def _look_later(self) -> None:
        if self._sums_timer is None:
            loop = asyncio.get_running_loop()
            self._sums_timer = loop.call_later(LOOK_AT_SUMS_S, self._look_at_sums)

    def _look_at_sums(self) -> None:
        self._sums_timer = None
        now_ms = self._now_ms()
        for line in (*self._crowds.ended(now_ms), *self._busy.ended(now_ms)):
            self._put(line)
        if self._crowds or self._busy:
            self._look_later()

    def _write_later(self) -> None:
        if self._timer is None and self._writing is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(WRITE_AFTER_S, self._begin_writing)

    def _begin_writing(self) -> None:
        self._timer = None
        lines, self._lines, self._lines_size = self._lines, [], 0
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(None, self._write, lines)
        self._writing.add_done_callback(self._written)

    def _written(self, writing: "asyncio.Future[None]") -> None:
        self._writing = None
        failed = None if writing.cancelled() else writing.exception()
        if failed is not None or self._left_out:
            log.error("audit lines are lost", reason=repr(failed), more=self._left_out)
            self._left_out = 0
        if self._lines:
            self._write_later()

    def _write(self, lines: list[bytes]) -> None:
        """Blocks."""
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, b"\n".join(lines) + b"\n")
            size = os.fstat(handle).st_size
        finally:
            os.close(handle)
        if size > FILE_SIZE_MAX:
            self._turn()

    def _turn(self) -> None:
        """Blocks. A new file; the oldest is gone."""
        names = [self._path] + [
            self._path.with_name(f"{self._path.name}.{number}") for number in range(1, FILES_KEPT)
        ]
        for path, kept in reversed(list(pairwise(names))):
            if path.exists():
                path.replace(kept)

    async def close(self) -> None:
        """Write what is gathered, sums that have not ended too."""
        if self._sums_timer is not None:
            self._sums_timer.cancel()
            self._sums_timer = None
        for line in (*self._crowds.all(), *self._busy.all()):
            self._put(line)
        while self._lines or self._writing is not None:
            if self._timer is not None:
                self._timer.cancel()
                self._begin_writing()
            if self._writing is not None:
                await asyncio.wait([self._writing])


def _cut(fact: Any) -> Any:
    """What others have said may be long."""
    if isinstance(fact, str):
        return fact if len(fact) <= TEXT_SIZE_MAX else f"{fact[:TEXT_SIZE_MAX]}…"
    if isinstance(fact, list):
        return [_cut(each) for each in fact[:LIST_SIZE_MAX]]
    return fact
