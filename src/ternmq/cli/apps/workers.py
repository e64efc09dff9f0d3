"""The workers of `tern run`: one process each, started again when they die, drained when all stops.

A worker tells that it takes messages by one byte on a pipe. Each has a session of its own, so that
Ctrl-C in a terminal reaches only this process, which tells them in order: at the first signal they
drain, at the second they hurry. A worker that ends by itself is started again after a pause that
doubles while it keeps dying; one that ends before it was ever ready, with the exit code of a usage
error, ends them all: its program is wrong and no pause mends that.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from ternmq.cli.apps.source_watch import changed, look
from ternmq.cli.processes.supervisor import (
    AGAIN_MAX_S,
    AGAIN_MIN_S,
    COMMAND,
    die_with_parent,
    ended,
)
from ternmq.core.errors import Unavailable
from ternmq.core.retry import doubled

READY_VARIABLE = "TERN_RUN_READY_FD"
LOOK_EVERY_S = 0.5
EXIT_USAGE = 2
STEADY_S = 10.0
"""A life so long forgives the deaths before it."""

OnReport = Callable[[str], None]


class WorkerProcess:
    """One process of the app, across restarts."""

    def __init__(self, number: int, arguments: Sequence[str], report: OnReport) -> None:
        self.number = number
        self._arguments = arguments
        self._report = report
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._restarting = False
        self.ready = False

    async def run(self) -> None:
        """Keep it running until it shall stop; raises `Unavailable` where that is hopeless."""
        loop = asyncio.get_running_loop()
        failures = 0
        while not self._stopping:
            self._restarting = False
            began, was_ready = loop.time(), await self._live()
            assert self._process is not None
            code = self._process.returncode or 0
            if self._stopping or self._restarting:
                continue
            if code == EXIT_USAGE and not was_ready:
                raise Unavailable("the app cannot be run; see the line above")
            failures = 0 if loop.time() - began > STEADY_S else failures + 1
            pause = doubled(max(0, failures - 1), first=AGAIN_MIN_S, most=AGAIN_MAX_S)
            self._report(
                f"error: worker {self.number} (pid {self._process.pid}) {ended(code)}; "
                f"starting it again in {pause:g} s"
            )
            await asyncio.sleep(pause)

    def signal(self, *, restart: bool = False) -> None:
        """Let it drain, or hurry if it does already; with `restart` a new one follows."""
        self._stopping = self._stopping or not restart
        self._restarting = restart
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)

    async def _live(self) -> bool:
        """One life; was it ever ready?"""
        reading, writing = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *COMMAND,
                *self._arguments,
                env=os.environ | {READY_VARIABLE: str(writing)},
                pass_fds=(writing,),
                start_new_session=True,
                preexec_fn=die_with_parent(os.getpid()),
            )
        finally:
            os.close(writing)
        was_ready = False

        def readable() -> None:
            nonlocal was_ready
            loop.remove_reader(reading)
            was_ready = self.ready = bool(os.read(reading, 1))

        loop = asyncio.get_running_loop()
        loop.add_reader(reading, readable)
        try:
            await self._process.wait()
        finally:
            self.ready = False
            loop.remove_reader(reading)
            os.close(reading)
        return was_ready


class WorkerPool:
    """All worker processes of one app."""

    def __init__(self, arguments: Sequence[str], count: int, report: OnReport) -> None:
        self._workers = [WorkerProcess(number + 1, arguments, report) for number in range(count)]
        self._report = report

    @property
    def ready(self) -> bool:
        return all(worker.ready for worker in self._workers)

    async def run(self, watched: Path | None = None) -> None:
        """Until a signal, or until one of them is hopeless; `watched`: restart when it changes."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        lives = [asyncio.create_task(worker.run()) for worker in self._workers]
        watching = asyncio.create_task(self._watch(watched)) if watched is not None else None
        try:
            await asyncio.wait(lives, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            if watching is not None:
                watching.cancel()
            self._stop()
            results = await asyncio.gather(*lives, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _stop(self) -> None:
        for worker in self._workers:
            worker.signal()

    async def _watch(self, folder: Path) -> None:
        before = await asyncio.to_thread(look, folder)
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            after = await asyncio.to_thread(look, folder)
            if files := changed(before, after):
                before = after
                more = f" and {len(files) - 1} more" if len(files) > 1 else ""
                self._report(f"{Path(files[0]).relative_to(folder)}{more} changed: starting again")
                for worker in self._workers:
                    worker.signal(restart=True)


def tell_ready() -> None:
    """In a worker: it takes messages now."""
    given = os.environ.pop(READY_VARIABLE, "")
    if given.isdigit():
        os.write(int(given), b"1")
        os.close(int(given))


def is_worker() -> bool:
    return READY_VARIABLE in os.environ
