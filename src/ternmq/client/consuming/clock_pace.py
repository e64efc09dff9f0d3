"""How many messages may be shown before the clock is looked at again. Pure.

A message whose lease is over must not be begun, and only the clock tells. Asking it costs a third
of showing a message, so who shows thousands in some milliseconds asks once for hundreds, and who
takes milliseconds for each asks every time. In order it is asked for every message: there
the next one of a key may be out already.
"""

LOOK_S = 0.002
"""Of showing messages, roughly, between two looks."""
ROWS_MAX = 1024


class ClockPace:
    """The pace of one consumer."""

    __slots__ = ("_looked_at", "_rows", "_rows_max")

    def __init__(self, *, ordered: bool) -> None:
        self._rows_max = 1 if ordered else ROWS_MAX
        self._rows = 1
        self._looked_at = 0.0

    def rows(self, now: float) -> int:
        """The clock was looked at; so many may be shown without it."""
        took, self._looked_at = now - self._looked_at, now
        if took <= LOOK_S:
            self._rows = min(2 * self._rows, self._rows_max)
        else:
            self._rows = max(1, int(self._rows * LOOK_S / took))
        return self._rows
