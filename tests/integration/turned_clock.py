"""Runs a node whose clock a test turns: `prefix=clock.prefix` of a node, then `clock.turn(3600)`.

The node is the real one, in its own process, and can be killed; only its `SystemClock` adds what
two numbers in a shared file say: how far the wall clock was set, and how much time passed besides.
"""

import mmap
import runpy
import struct
import sys
import time
from pathlib import Path

_OFFSETS = struct.Struct("<qq")  # Milliseconds: wall clock, monotonic clock.


class SharedClock:
    """The test's side: turns the clock of every node that was started with `prefix`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(_OFFSETS.pack(0, 0))
        self._wall = self._passed = 0

    @property
    def prefix(self) -> tuple[str, ...]:
        return (sys.executable, __file__, str(self.path))

    def now(self) -> float:
        """Seconds since 1970, as the node sees it."""
        return time.time() + self._wall / 1000

    def turn(self, seconds: float) -> None:
        """Time passes."""
        self._write(seconds, seconds)

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self._write(seconds, 0)

    def _write(self, wall: float, passed: float) -> None:
        self._wall += int(wall * 1000)
        self._passed += int(passed * 1000)
        with self.path.open("r+b") as file:
            file.write(_OFFSETS.pack(self._wall, self._passed))


def main() -> None:
    """The node's side: `turned_clock.py CLOCK PYTHON -m ternmq.cli.main …`."""
    from ternmq.core.clock import SystemClock

    with Path(sys.argv[1]).open("rb") as file:
        shared = mmap.mmap(file.fileno(), _OFFSETS.size, access=mmap.ACCESS_READ)

    class Turned:
        def now_ms(self) -> int:
            return time.time_ns() // 1_000_000 + int(_OFFSETS.unpack_from(shared)[0])

        def monotonic(self) -> float:
            return time.monotonic() + float(_OFFSETS.unpack_from(shared)[1]) / 1000

    for name in ("now_ms", "monotonic"):
        setattr(SystemClock, name, getattr(Turned, name))
    module = sys.argv[4]
    sys.argv = ["tern", *sys.argv[5:]]
    runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    main()
