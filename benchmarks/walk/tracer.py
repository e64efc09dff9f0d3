"""Listens to the interpreter while a walk runs: every call into the package, on every thread.

`sys.setprofile` concerns one thread and `threading.setprofile` only threads that start later, so a
tracer is installed before the node is started and hears nothing until `recording`. Time is CPU time
of the thread, the tracer's own included: it compares files, it does not say how fast they are.
Waiting costs nothing, neither for a disk nor for a lock.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import ternmq
from benchmarks.walk.trace import Call

PACKAGE = Path(ternmq.__file__).parent
ARRIVALS = {"buffer_updated", "data_received"}
"""What asyncio calls on a protocol when bytes come."""
WRITES = {"pwrite", "pwritev", "write", "writev"}
"""What the `os` module writes to a file with."""


@dataclass(slots=True)
class _Stack:
    """Calls of one thread that have not returned."""

    calls: list[tuple[FrameType, Call]] = field(default_factory=list)
    since: int = 0


class Tracer:
    """One at a time; `installed` around everything, `recording` around a walk."""

    def __init__(self) -> None:
        self._files: dict[CodeType, str | None] = {}
        self._on = False
        self._calls: list[Call] = []
        self._stacks: dict[int, _Stack] = {}
        self._trees = 0

    @contextmanager
    def installed(self) -> Iterator["Tracer"]:
        before = sys.getprofile()
        threading.setprofile(self._heard)
        sys.setprofile(self._heard)
        try:
            yield self
        finally:
            sys.setprofile(before)
            threading.setprofile(before)

    @contextmanager
    def recording(self) -> Iterator[list[Call]]:
        """The list grows while the block runs."""
        self._calls, self._stacks, self._trees = [], {}, 0
        self._on = True
        try:
            yield self._calls
        finally:
            self._on = False

    def _heard(self, frame: FrameType, event: str, about: Any) -> None:
        if not self._on:
            return
        file = self._file(frame.f_code)
        if file is None:
            return
        if event == "call":
            self._called(frame, file)
        elif event == "return":
            self._returned(frame)
        elif event == "c_call" and about.__name__ in WRITES and about.__module__ == "posix":
            stack = self._stacks.get(threading.get_ident())
            if stack is not None and stack.calls:
                stack.calls[-1][1].writes = True

    def _called(self, frame: FrameType, file: str) -> None:
        thread = threading.get_ident()
        stack = self._stacks.setdefault(thread, _Stack())
        now = time.thread_time_ns()
        if stack.calls:
            above = stack.calls[-1][1]
            above.nanoseconds += now - stack.since
            tree = above.tree
        else:
            tree = self._trees = self._trees + 1
        code = frame.f_code
        arrives = code.co_name in ARRIVALS
        call = Call(file, code.co_qualname, self._caller(frame), tree, thread, arrives=arrives)
        self._calls.append(call)
        stack.calls.append((frame, call))
        stack.since = time.thread_time_ns()

    def _returned(self, frame: FrameType) -> None:
        stack = self._stacks.get(threading.get_ident())
        if stack is None or not stack.calls or stack.calls[-1][0] is not frame:
            return  # It was called before the recording began.
        _, call = stack.calls.pop()
        now = time.thread_time_ns()
        call.nanoseconds += now - stack.since
        stack.since = now

    def _caller(self, frame: FrameType) -> str | None:
        """The nearest file of the package below; it may have been called before the recording."""
        below = frame.f_back
        while below is not None:
            if (file := self._file(below.f_code)) is not None:
                return file
            below = below.f_back
        return None

    def _file(self, code: CodeType) -> str | None:
        try:
            return self._files[code]
        except KeyError:
            path = Path(code.co_filename)
            inside = path.is_relative_to(PACKAGE)
            file = path.relative_to(PACKAGE).as_posix() if inside else None
            return self._files.setdefault(code, file)
