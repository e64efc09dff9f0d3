"""Says the same thing once, and again every minute while it lasts: for what is tried all the time.

A log line that comes three times a second hides the others and fills disks. Something else is said
at once. Pure: whoever asks says what time it is.
"""

AGAIN_S = 60.0


class LogThrottle:
    """What was said last, of each event."""

    __slots__ = ("_said",)

    def __init__(self) -> None:
        self._said: dict[str, tuple[str, float]] = {}

    def due(self, event: str, reason: str, now: float) -> bool:
        """Is it to be said now? If so it counts as said."""
        said, at = self._said.get(event, (None, 0.0))
        if reason == said and now - at < AGAIN_S:
            return False
        self._said[event] = (reason, now)
        return True

    def over(self) -> None:
        """It is well again: the same trouble is news next time."""
        self._said.clear()
