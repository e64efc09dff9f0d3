"""What one walk called, as data: files in order, crossings, time, and the spine. Pure.

A *tree* is everything called below one callback of the event loop, or below one step of a thread.
A tree that also grows while nothing happens (a tick with nothing due, a heartbeat) is background:
`without` takes it out, call for call the same or not at all. The *spine* is the shortest way by
calls from the file where bytes arrive to the file that writes them to a disk: what a reader must
open to follow a message down. Never runs anything.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

Tree = tuple[tuple[str, str], ...]
"""File and function of every call below one callback, in order."""

LEFT_OUT = frozenset({"core/clock.py", "core/log.py"})
"""Called from everywhere and part of no walk."""


@dataclass(slots=True)
class Call:
    """One call into the package, or one resumption of a coroutine."""

    file: str
    function: str
    caller: str | None
    """The file that called; None when the event loop did."""
    tree: int
    thread: int = 0
    arrives: bool = False
    """The event loop hands over bytes from a socket."""
    writes: bool = False
    """It hands bytes to a file of the operating system."""
    nanoseconds: int = 0
    """CPU time in this call, without calls into other files of the package."""


@dataclass(frozen=True, slots=True)
class FileLine:
    """What a walk did in one file."""

    file: str
    calls: int
    microseconds: float


@dataclass(frozen=True)
class Trace:
    """All calls of one walk, in order, over all threads."""

    calls: Sequence[Call]

    def without(self, background: Collection[Tree]) -> "Trace":
        """The same walk without trees that are background, and without what is in no walk."""
        noise = {number for number, tree in self._numbered.items() if tree in background}
        kept = [call for call in self.calls if call.tree not in noise and call.file not in LEFT_OUT]
        return Trace(kept)

    def since(self, count: int, thread: int) -> "Trace":
        """Without the first calls of one thread; what others did meanwhile is kept."""
        early = (call for call in self.calls[:count] if call.thread != thread)
        return Trace([*early, *self.calls[count:]])

    @cached_property
    def _numbered(self) -> dict[int, Tree]:
        grown: dict[int, list[tuple[str, str]]] = {}
        for call in self.calls:
            grown.setdefault(call.tree, []).append((call.file, call.function))
        return {number: tuple(calls) for number, calls in grown.items()}

    @property
    def trees(self) -> set[Tree]:
        return set(self._numbered.values())

    @property
    def functions(self) -> int:
        return len({(call.file, call.function) for call in self.calls})

    @cached_property
    def files(self) -> list[str]:
        """Every file once, in the order of the first call into each."""
        return list(dict.fromkeys(call.file for call in self.calls))

    @property
    def crossings(self) -> int:
        """How often the next call is in another file."""
        return sum(a.file != b.file for a, b in pairwise(self.calls))

    @property
    def lines(self) -> list[FileLine]:
        return [self._line(file) for file in self.files]

    def _line(self, file: str) -> FileLine:
        times = [call.nanoseconds for call in self.calls if call.file == file]
        return FileLine(file, len(times), sum(times) / 1000)

    def under(self, package: str) -> int:
        """How many files of one package are crossed."""
        return sum(file.startswith(f"{package}/") for file in self.files)

    @cached_property
    def spine(self) -> list[str]:
        """From a socket to a disk by the fewest files; empty when nothing is written."""
        edges: dict[str, dict[str, None]] = {}
        for call in self.calls:
            if call.caller is not None:
                edges.setdefault(call.caller, {})[call.file] = None
        arriving = dict.fromkeys(call.file for call in self.calls if call.arrives)
        writing = {call.file for call in self.calls if call.writes}
        return shortest(edges, arriving, writing)


def shortest(
    edges: dict[str, dict[str, None]], sources: Iterable[str], targets: Collection[str]
) -> list[str]:
    """The shortest path from any source to any target; empty when there is none."""
    paths = deque([source] for source in sources)
    seen = {path[0] for path in paths}
    while paths:
        path = paths.popleft()
        if path[-1] in targets:
            return path
        for after in edges.get(path[-1], {}):
            if after not in seen:
                seen.add(after)
                paths.append([*path, after])
    return []


def in_order(wanted: Sequence[str], crossed: Sequence[str]) -> list[str]:
    """What is wrong with a list of files that claims to be a way through these calls: each must be
    called at some point after the one before it."""
    wrong, at = [], 0
    for file in wanted:
        if file not in crossed:
            wrong.append(f"{file} is not crossed")
        elif file in crossed[at:]:
            at = crossed.index(file, at)
        else:
            wrong.append(f"{file} is not crossed after {crossed[at]}")
    return wrong
