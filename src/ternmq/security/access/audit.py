"""Who did what: one JSON object a line, in a file of its own beside the data.

Logins, refusals, and everything about operating, managing, the cluster and grants: when, who, from
where, what, to what, with which result. Never a body, a proof or a password. What comes in crowds
is summed: failed logins of one address and refusals of one peer are one line a minute, with how
many there were. Lines are gathered on the loop and written by a thread; a full disk loses lines and
says so in the log, and never keeps a client waiting. A file of `FILE_SIZE_MAX` is kept as `.1`.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ternmq.core.log import get_logger

FILE_SIZE_MAX = 64 * 1024 * 1024
SUMMED_S = 60.0
SUMS_MAX = 10_000
LINES_MAX = 20_000
"""Waiting to be written; more are counted only."""
WRITE_AFTER_S = 0.2

log = get_logger()


def audit_file(server: str) -> str:
    """In the data directory; servers of one process have one each."""
    return f"audit-{server}.log"


class AuditLog:
    """Of one server."""

    def __init__(self, path: Path, *, server: str, now_ms: Callable[[], int]) -> None:
        self._path = path
        self._server = server
        self._now_ms = now_ms
        self._lines: list[bytes] = []
        self._left_out = 0
        self._sums: dict[tuple[str, str, str], tuple[int, int]] = {}
        self._writing: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def note(self, event: str, *, who: str, address: str, result: str, **facts: Any) -> None:
        """One line."""
        line = {
            "at_ms": self._now_ms(),
            "server": self._server,
            "event": event,
            "who": who,
            "from": address,
            "result": result,
            **facts,
        }
        if len(self._lines) >= LINES_MAX:
            self._left_out += 1
            return
        self._lines.append(msgspec.json.encode(line))
        self._write_later()

    def note_summed(self, event: str, *, who: str, address: str, result: str, **facts: Any) -> None:
        """The first at once; those of the next minute as one line with their number, when the next
        one comes after it."""
        key = (event, who, address)
        began, count = self._sums.get(key, (0, 0))
        now_ms = self._now_ms()
        if count and now_ms - began < SUMMED_S * 1000:
            self._sums[key] = began, count + 1
            return
        if len(self._sums) >= SUMS_MAX:
            self._sums.clear()
        self._sums[key] = now_ms, 1
        before = {"before": count - 1} if count > 1 else {}
        self.note(event, who=who, address=address, result=result, **facts, **before)

    def _write_later(self) -> None:
        if self._timer is None and self._writing is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(WRITE_AFTER_S, self._begin_writing)

    def _begin_writing(self) -> None:
        self._timer = None
        lines, self._lines = self._lines, []
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
            self._path.replace(self._path.with_suffix(".log.1"))

    async def close(self) -> None:
        """Write what is gathered."""
        while self._lines or self._writing is not None:
            if self._timer is not None:
                self._timer.cancel()
                self._begin_writing()
            if self._writing is not None:
                await asyncio.wait([self._writing])
