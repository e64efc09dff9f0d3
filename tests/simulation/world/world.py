"""Everything that happens, in order: one heap of events in virtual time, decided by one seed.

`World(seed)` has machines (`machine.py`) that run the real code on loops of its own (`loop.py`)
over a network of its own (`network.py`). The same seed gives the same events: whatever is random is
drawn from the seed, also for code that asks the `random` and `secrets` modules. A hash over all
events shows it. `bug` collects what no fault excuses: exceptions nobody expected, failing
callbacks, log events that speak of a bug.
"""

import gc
import os
import random
import resource
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import count, pairwise
from typing import Any

import structlog

from tests.simulation.world.machine import Machine, Main, Process
from tests.simulation.world.network import Network

TRACE_KEPT = 400
EVENTS_MAX = 3_000_000
LOOK_S = 0.05
"""How often is looked whether what is waited for has happened."""
NOTHING_USED = resource.struct_rusage(range(16))


class Stuck(AssertionError):
    """What was waited for did not happen."""


class Pace:
    """How long things take when nothing is wrong, and how bytes are cut."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._far = chance.choice((0.0002, 0.001, 0.01))
        self._cuts = chance.choice((0.0, 0.05, 0.3))

    def wake(self) -> float:
        """From being ready to running."""
        return self._chance.random() * 0.0002

    def latency(self) -> float:
        """From one machine to another."""
        late = self._chance.random()
        return self._far * (0.5 + late) if late < 0.99 else self._far * 20

    def repeat(self) -> float:
        """Until TCP tries again what did not get through."""
        return self._chance.uniform(0.01, 1.5)

    def pieces(self, data: bytes) -> list[bytes]:
        """The same bytes, as they may arrive."""
        if self._chance.random() >= self._cuts or len(data) < 2:
            return [data]
        at = sorted(
            self._chance.randrange(1, len(data)) for _ in range(self._chance.choice((1, 3)))
        )
        edges = [0, *at, len(data)]
        return [data[low:high] for low, high in pairwise(edges) if low < high]


class World:
    """One run."""

    def __init__(self, seed: int, *, hashed: bool = True) -> None:
        """`hashed`: there is a digest of all events, to compare two runs by."""
        self.seed = seed
        self.hashed = hashed
        self.random = random.Random(seed)
        self.now = 0.0
        self.machines: dict[str, Machine] = {}
        self.pace = Pace(self.random)
        self.network = Network(self)
        self.current: Process | None = None
        self.graveyard: list[Any] = []
        self.bugs: list[str] = []
        self.logged: deque[str] = deque(maxlen=TRACE_KEPT)
        self.tell: Callable[[str], None] | None = None
        """Hears every log event and every event of the world, for people who replay a seed."""
        self.events = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = count()
        self._hash = blake2b(digest_size=16)

    # Time.

    def at(self, when: float, callback: Callable[..., None], *args: Any) -> None:
        heappush(self._heap, (when, next(self._number), callback, args))

    def after(self, delay: float, callback: Callable[..., None], *args: Any) -> None:
        heappush(self._heap, (self.now + delay, next(self._number), callback, args))

    def turn_soon(self, turn: Callable[[], None]) -> None:
        """As `after(pace.wake(), turn)`; the one event that most events are."""
        when = self.now + self.pace.wake()
        heappush(self._heap, (when, next(self._number), turn, ()))

    def run(self, done: Callable[[], bool], within: float, what: str) -> None:
        """Let time pass until `done`; raises `Stuck` when it is not within so many seconds."""
        limit = self.now + within
        while not done():
            if self.now >= limit or self.events > EVENTS_MAX:
                raise Stuck(f"{what}: not within {within:g} s")
            self.run_for(min(LOOK_S, limit - self.now))

    def run_for(self, seconds: float) -> None:
        """Let so much time pass."""
        until = self.now + seconds
        heap, bugs = self._heap, self.bugs
        while heap and heap[0][0] <= until:
            when, _, callback, args = heappop(heap)
            if when > self.now:
                self.now = when
            self.events += 1
            callback(*args)
            if bugs:
                raise AssertionError(bugs[0])
        self.now = until

    # Machines.

    def add(self, name: str, main: Main) -> Machine:
        machine = self.machines[name] = Machine(self, name, main, number=len(self.machines))
        return machine

    # What happened.

    def trace(self, what: str, one: Any, other: Any) -> None:
        if not self.hashed and self.tell is None:
            return
        line = f"{self.now:.9f} {what} {one} {other}"
        self._hash.update(line.encode())
        if self.tell is not None:
            self.tell(line)

    def digest(self) -> str:
        return self._hash.hexdigest()

    def bug(self, text: str, error: BaseException | None = None) -> None:
        stack = "".join(traceback.format_exception(error)) if error is not None else ""
        self.bugs.append(f"{self.now:.3f} {text}\n{stack}")

    def _log(self, _logger: Any, level: str, event: dict[str, Any]) -> Any:
        where = self.current.machine.name if self.current is not None else "-"
        text = event.pop("event")
        broken = event.pop("exc_info", None)
        fields = " ".join(f"{key}={value}" for key, value in event.items())
        line = f"{self.now:.6f} {where} {level}: {text} {fields}"
        self.logged.append(line)
        if self.tell is not None:
            self.tell(line)
        if "by a bug" in text or broken:
            self.bugs.append(f"{line}\n{traceback.format_exc()}")
        raise structlog.DropEvent

    # The frame around a run.

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Randomness, names and logs are the world's while the block runs."""
        kept = (random.getstate(), random._urandom, os.urandom, os.getpid, socket.gethostname)  # type: ignore[attr-defined]
        ids = random.Random(f"ids {self.seed}")
        random.seed(self.seed)
        random._urandom = os.urandom = ids.randbytes  # type: ignore[attr-defined]
        os.getpid = lambda: self.current.machine.pid if self.current else 1
        socket.gethostname = lambda: self.current.machine.name if self.current else "world"
        # STATUS tells what a process uses.
        usage = (resource.getrusage, resource.getpagesize, time.process_time)
        resource.getrusage = lambda who: NOTHING_USED
        resource.getpagesize = lambda: 0
        time.process_time = lambda: 0.0
        structlog.configure(processors=[self._log])  # type: ignore[list-item]
        collecting = gc.isenabled()
        gc.disable()  # When something is collected must not depend on what ran before.
        gc.freeze()
        try:
            yield
        finally:
            self._bury_all()
            random.setstate(kept[0])
            random._urandom, os.urandom, os.getpid, socket.gethostname = kept[1:]  # type: ignore[attr-defined]
            resource.getrusage, resource.getpagesize, time.process_time = usage
            structlog.reset_defaults()
            gc.unfreeze()
            if collecting:
                gc.enable()

    def _bury_all(self) -> None:
        """What is still suspended is closed by force; whatever it says is nobody's business."""
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            for machine in self.machines.values():
                machine.disk.restart()
                machine.bury()
                machine.process = None
            for task in self.graveyard:
                task._log_destroy_pending = False
                _close(task.get_coro())
            self.graveyard.clear()
            self._heap.clear()
            gc.collect()
        finally:
            sys.unraisablehook = hook


def _close(coroutine: Any) -> None:
    for _ in range(20):
        try:
            coroutine.close()
            return
        except BaseException:  # It ignored that, or wanted to tell somebody.
            continue
