"""Processes of one cluster: started in order, watched, reported when they die, stopped in order.

Each has a log file of its own (stderr, appended) and a session of its own, so that Ctrl-C in a
terminal reaches only the one who stops them in order. Should that one be killed, the kernel tells
its children to stop (`PR_SET_PDEATHSIG`). A process that ends by itself is started again only if
that was asked for.
"""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ternmq.cli.processes.cluster_plan import Planned
from ternmq.core.errors import Unavailable
from ternmq.core.retry import doubled

COMMAND = (sys.executable, "-m", "ternmq.cli.main")
READY_S = 60.0
STOP_S = 10.0
"""A server ends itself after 9 s at the latest."""
AGAIN_MIN_S = 1.0
AGAIN_MAX_S = 30.0
LOG_TAIL = 16_384
PR_SET_PDEATHSIG = 1

OnReport = Callable[[str], None]
_libc = ctypes.CDLL(None, use_errno=True)


class Supervised:
    """One process of the plan, across restarts."""

    def __init__(
        self,
        planned: Planned,
        log: Path,
        report: OnReport,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.planned = planned
        self._environment = dict(environment or {})
        self.log = log
        self._report = report
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._log_from = 0

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Until its ready line; raises what it said instead."""
        with self.log.open("ab") as log:
            self._log_from = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                *COMMAND,
                *self.planned.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=_environment() | self._environment,
                start_new_session=True,
                preexec_fn=die_with_parent(os.getpid()),
            )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(READY_S):
                line = await self._process.stdout.readline()
                if line.startswith(b"ready "):
                    return
                await self._process.wait()
        except TimeoutError:
            raise Unavailable(
                f"{self.planned.name} is not ready after {READY_S:g} s; its log is {self.log}"
            ) from None
        raise Unavailable(f"{self.planned.name} did not start: {self._last_words()}")

    def watch(self, *, restart: bool) -> None:
        """From now on its end is reported."""
        self._watching = asyncio.create_task(self._watch(restart), name=self.planned.name)

    async def stop(self, seconds: float = STOP_S) -> None:
        """SIGTERM, and SIGKILL for one that hangs."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(seconds):
                await process.wait()
        except TimeoutError:
            self._report(f"error: {self.planned.name} did not stop within {seconds:g} s: killed")
            process.kill()
            await process.wait()

    async def _watch(self, restart: bool) -> None:
        failures = 0
        while True:
            assert self._process is not None
            code = await self._process.wait()
            line = f"error: {self.planned.name} (pid {self.pid}) {ended(code)}; log: {self.log}"
            if not restart:
                self._report(f"{line}\n  start it again: tern {' '.join(self.planned.arguments)}")
                return
            pause = doubled(failures, first=AGAIN_MIN_S, most=AGAIN_MAX_S)
            self._report(f"{line}; starting it again in {pause:g} s")
            await asyncio.sleep(pause)
            try:
                await self.start()
                failures = 0
                self._report(f"{self.planned.name} is back (pid {self.pid})")
            except Unavailable as error:
                failures += 1
                self._report(f"error: {error.message}")

    def _last_words(self) -> str:
        """The last line of this life that says what went wrong."""
        with self.log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_from, end - LOG_TAIL))
            lines = log.read().decode("utf-8", "replace").splitlines()
        for line in reversed(lines):
            if line.startswith("error: "):
                return line.removeprefix("error: ")
        assert self._process is not None
        return f"it {ended(self._process.returncode or 0)}; its log is {self.log}"


async def start_together(servers: Sequence[Supervised]) -> None:
    """All at once; the first one that fails says why, and the others are not waited for."""
    starts = [asyncio.create_task(server.start(), name=server.planned.name) for server in servers]
    try:
        for done in asyncio.as_completed(starts):
            await done
    finally:
        for start in starts:
            start.cancel()
        if starts:
            await asyncio.wait(starts)


async def stop_together(servers: Sequence[Supervised]) -> None:
    await asyncio.gather(*(server.stop() for server in servers))


def _environment() -> dict[str, str]:
    """Settings for all servers may stand there, but they cannot share one port."""
    return {name: value for name, value in os.environ.items() if name != "TERN_METRICS_PORT"}


def die_with_parent(parent: int) -> Callable[[], None]:
    def before_exec() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # It died in between.
            os._exit(1)

    return before_exec


def ended(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"
