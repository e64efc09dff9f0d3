"""How often something happened within a minute, where a line for each would be too many; pure.

The first `at_once` of a minute are lines of their own. The others are counted, and when the minute
is over they are one line: the last of them, with `times`. Bounded: beyond `SUMS_MAX` the oldest sum
ends early, and is not lost.
"""

from dataclasses import dataclass, field
from typing import Any

WINDOW_MS = 60_000
SUMS_MAX = 10_000

Line = dict[str, Any]


@dataclass(slots=True)
class _Sum:
    began_ms: int
    count: int = 0
    more: int = 0
    last: Line = field(default_factory=dict)

    def ended(self, now_ms: int) -> bool:
        """Also where the clock was set back."""
        return not 0 <= now_ms - self.began_ms < WINDOW_MS

    def lines(self) -> list[Line]:
        return [{**self.last, "times": self.more}] if self.more else []


class AuditSums:
    """Sums of one audit log."""

    def __init__(self, *, at_once: int) -> None:
        self._at_once = at_once
        self._sums: dict[tuple[str, ...], _Sum] = {}

    def __bool__(self) -> bool:
        return bool(self._sums)

    def add(self, key: tuple[str, ...], line: Line, now_ms: int) -> list[Line]:
        """What is to be written now: the line, if it is one of the first, and sums that ended."""
        ended: list[Line] = []
        one = self._sums.get(key)
        if one is not None and one.ended(now_ms):
            ended += self._sums.pop(key).lines()
            one = None
        if one is None:
            if len(self._sums) >= SUMS_MAX:
                ended += self._sums.pop(next(iter(self._sums))).lines()
            one = self._sums[key] = _Sum(now_ms)
        one.count += 1
        if one.count <= self._at_once:
            return [*ended, line]
        one.more += int(line.get("times", 1))
        one.last = line
        return ended

    def ended(self, now_ms: int) -> list[Line]:
        """The sums whose minute is over; they begin anew."""
        return self._taken([key for key, one in self._sums.items() if one.ended(now_ms)])

    def all(self) -> list[Line]:
        """Of every sum, finished or not."""
        return self._taken(list(self._sums))

    def _taken(self, keys: list[tuple[str, ...]]) -> list[Line]:
        return [line for key in keys for line in self._sums.pop(key).lines()]
