"""How much passes a second, lately: two sliding windows and a total. Pure; the moment is handed in.

A window keeps what came in the current span of its width and in the one before, and counts the
older one by the part of it that still lies within the width. Two numbers instead of one for every
second: O(1) for a batch, and 50,000 topics fit in memory.
"""

WIDTHS_S = (10.0, 60.0)


class RateWindow:
    """What came within the last `width` seconds."""

    __slots__ = ("_born", "_rows", "_rows_before", "_size", "_size_before", "_start", "_width")

    def __init__(self, width: float, now: float) -> None:
        self._width = width
        self._born = self._start = now
        self._rows = self._rows_before = 0
        self._size = self._size_before = 0

    def add(self, rows: int, size: int, now: float) -> None:
        if now - self._start >= self._width:
            self._roll(now)
        self._rows += rows
        self._size += size

    def rates(self, now: float) -> tuple[float, float]:
        """Messages and bytes a second; a meter younger than its width counts from its birth."""
        if now - self._start >= self._width:
            self._roll(now)
        share = 1.0 - (now - self._start) / self._width
        span = min(self._width, max(1.0, now - self._born))
        rows = self._rows + share * self._rows_before
        size = self._size + share * self._size_before
        return rows / span, size / span

    def _roll(self, now: float) -> None:
        spans = int((now - self._start) / self._width)
        self._rows_before, self._size_before = (self._rows, self._size) if spans == 1 else (0, 0)
        self._rows = self._size = 0
        self._start += spans * self._width


class Meter:
    """Rates over both widths, and everything so far."""

    __slots__ = ("_long", "_short", "rows", "size")

    def __init__(self, now: float) -> None:
        self._short, self._long = (RateWindow(width, now) for width in WIDTHS_S)
        self.rows = self.size = 0

    def add(self, rows: int, size: int, now: float) -> None:
        self._short.add(rows, size, now)
        self._long.add(rows, size, now)
        self.rows += rows
        self.size += size

    def rates(self, now: float) -> tuple[float, float, float, float]:
        """Messages and bytes a second over 10 s, then over 60 s."""
        return (*self._short.rates(now), *self._long.rates(now))
