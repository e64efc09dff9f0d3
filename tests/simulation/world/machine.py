"""A machine of the simulated cluster: its clock, its disk, and the process that runs on it.

The machine stays; processes come and go. `kill` is kill -9: what the process wrote stays, its
sockets are closed by the kernel. `cut_power` takes unsynced writes with it and tells nobody.
`pause` is SIGSTOP: the kernel goes on receiving, the process does nothing. A process that ends by
itself is started again after a moment, as systemd would. What a dead process left suspended is
kept until the world ends: it must not run any more, not even its `finally`.
"""

import asyncio
from asyncio import events
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ternmq.core.errors import TernError
from ternmq.testing.disk import Faults, PowerCut, SimulatedDisk
from tests.simulation.world.loop import NodeLoop

if TYPE_CHECKING:
    from tests.simulation.world.network import End
    from tests.simulation.world.world import World

WALL_MS = 1_800_000_000_000
ROOM_FROM = 1_000
Main = Callable[["Process"], Coroutine[Any, Any, None]]


class MachineClock:
    """Wall clock and monotonic clock of one machine; both may be wrong in their own way."""

    def __init__(self, world: "World", *, offset: float, rate: float, skew_ms: int) -> None:
        self._world = world
        self._offset = offset
        self._rate = rate
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return WALL_MS + self.skew_ms + int(self._world.now * self._rate * 1000)

    def monotonic(self) -> float:
        return self._offset + self._world.now * self._rate

    def world_time(self, monotonic: float) -> float:
        return (monotonic - self._offset) / self._rate


class DiskTroubles(Faults):
    """Takes time, and goes wrong at the rates that are set."""

    def __init__(self, machine: "Machine") -> None:
        super().__init__()
        self._machine = machine
        self.slow = 1.0
        self.fail_syncs = 0.0
        self.fail_writes = 0.0
        self.short_writes = 0.0
        self.fail_reads = 0.0

    def next_read(self) -> bool:
        return self.fail_reads > 0 and self._machine.world.random.random() < self.fail_reads

    def next_write(self) -> str | None:
        random, process = self._machine.world.random, self._machine.process
        if process is not None:
            process.disk_s += random.random() * 0.0002 * self.slow
        how = super().next_write()
        if how is None and self.fail_writes and random.random() < self.fail_writes:
            return random.choice(("failed", "full"))
        if how is None and self.short_writes and random.random() < self.short_writes:
            return "short"
        return how

    def next_sync(self) -> bool:
        random, process = self._machine.world.random, self._machine.process
        if process is not None:
            process.disk_s += (0.0005 + random.random() * 0.003) * self.slow
        failed = super().next_sync()
        return failed or (self.fail_syncs > 0 and random.random() < self.fail_syncs)

    def calm(self) -> None:
        """Everything works again, at its usual speed."""
        self.clear()
        self.slow = 1.0
        self.fail_syncs = self.fail_writes = self.short_writes = self.fail_reads = 0.0


class Process:
    """One life of what runs on a machine."""

    def __init__(self, machine: "Machine", main: Main) -> None:
        self.machine = machine
        self.alive = True
        self.powerless = False
        self.disk_s = 0.0
        """Seconds that the disk took for the job that runs."""
        self.ends: dict[End, None] = {}
        self.ports: dict[int, Any] = {}
        self.loop = NodeLoop(self)
        self._held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        with self.entered(self.loop):
            self.stopping = asyncio.Event()
            self.task = self.loop.create_task(main(self), name="main")
            self.task.add_done_callback(self._ended)

    @property
    def running(self) -> bool:
        return self.alive and not self.machine.paused

    @contextmanager
    def entered(self, loop: NodeLoop | None) -> Iterator[None]:
        """Code of this process runs: on its loop, or (None) in one of its threads."""
        world = self.machine.world
        before, world.current = world.current, self
        events._set_running_loop(loop)
        try:
            yield
        except PowerCut:
            self.machine.lost_power()
        finally:
            events._set_running_loop(None)
            world.current = before

    def later(self, delay: float, what: str, callback: Callable[..., None], *args: Any) -> None:
        """A step of one of this process's threads; waits while the process is paused."""
        self.machine.world.after(delay, self._step, what, callback, args)

    def _step(self, what: str, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        if not self.alive:
            return
        if self.machine.paused:
            self._held.append((callback, args))
            return
        self.machine.world.trace(what, self.machine.name, callback.__name__)
        callback(*args)

    def run_job(self, job: Callable[[], Any]) -> None:
        with self.entered(None):
            job()
        self.loop.end_job()

    def resumed(self) -> None:
        held, self._held = self._held, []
        for callback, args in held:
            self.later(0.0, "resumed", callback, *args)
        self.loop.wake()

    def stop(self) -> None:
        """SIGTERM."""
        self.loop.call_soon(self.stopping.set)

    def die(self) -> None:
        self.alive = False
        self.ports.clear()
        self.loop.discard()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        self.machine.exited(self, error)

    def broke(self, context: dict[str, Any]) -> None:
        """Something that asyncio reports: an exception nobody looked at, a failing callback."""
        error = context.get("exception")
        if isinstance(error, PowerCut):
            self.machine.lost_power()
            return
        if not isinstance(error, TernError | asyncio.CancelledError):
            self.machine.world.bug(f"{context.get('message')}: {error!r}", error)


class Machine:
    """A host with a name, a disk and a clock."""

    def __init__(self, world: "World", name: str, main: Main, *, number: int) -> None:
        self.world = world
        self.name = name
        self.pid = 1000 + number
        random = world.random
        self.clock = MachineClock(
            world,
            offset=random.uniform(10, 10_000),
            rate=random.uniform(0.9995, 1.0005),
            skew_ms=random.randrange(-2_000, 2_000),
        )
        self.troubles = DiskTroubles(self)
        self.lose_disk()
        self.up = True
        self.paused = False
        self.wanted = True
        """Whether a process that ends is started again."""
        self.starts = 0
        self.process: Process | None = None
        self.exits: list[str] = []
        self._main = main

    def lose_disk(self) -> None:
        """An empty one is in its place."""
        # By the seed alone: which seeds find which bug stays as it is for those of `make test`.
        self.disk = SimulatedDisk(room=0 if self.world.seed < ROOM_FROM else 1_000)
        self.disk.faults = self.troubles

    def start(self) -> None:
        """Switch it on, if it is off, and start the process."""
        if self.process is not None and self.process.alive:
            return
        if not self.up:
            self.up = True
            self.world.network.look_again()
        self.starts += 1
        self.world.trace("start", self.name, self.starts)
        self.process = Process(self, self._main)

    def start_after(self, seconds: float) -> None:
        self.world.after(seconds, self._start_again)

    def _start_again(self) -> None:
        if self.wanted:
            self.start()

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None and self.process.alive:
            self.world.trace("kill", self.name, 0)
            self.bury()
            self.disk.restart()
            self.world.network.killed(self.process)

    def cut_power(self) -> None:
        """The machine is off, at once."""
        self.world.trace("power", self.name, 0)
        if self.process is not None:
            self.process.powerless = True
        self.bury()
        self.up = False
        self.disk.crash(self.world.random.randrange(2**32))

    def lost_power(self) -> None:
        """In the middle of a call to the disk; it comes back by itself."""
        self.cut_power()
        self.start_after(self.world.random.uniform(0.1, 3.0))

    def bury(self) -> None:
        self.paused = False
        if self.process is not None and self.process.alive:
            self.world.graveyard.extend(self.process.loop.tasks)
            self.process.die()

    def pause(self) -> None:
        self.world.trace("pause", self.name, 0)
        self.paused = True

    def resume(self) -> None:
        if self.paused:
            self.world.trace("resume", self.name, 0)
            self.paused = False
            if self.process is not None and self.process.alive:
                self.process.resumed()

    def exited(self, process: Process, error: BaseException | None) -> None:
        """The process ended by itself."""
        if process is not self.process or not process.alive:
            return
        self.world.trace("exit", self.name, repr(error))
        self.exits.append(f"{self.world.now:.3f} {error!r}")
        if error is not None and not _expected(error):
            self.world.bug(f"{self.name} ended: {error!r}", error)
        self.world.network.killed(process)
        self.bury()
        self.disk.restart()
        self.start_after(self.world.random.uniform(0.2, 2.0))


def _expected(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_expected(each) for each in error.exceptions)
    return isinstance(error, TernError)
