"""A clock that tests turn. The wall clock may jump; the monotonic one only goes forward."""


class TurnedClock:
    """Stands still until somebody turns it."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 1_000.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def turn(self, seconds: float) -> None:
        """Time passes, for both clocks."""
        assert seconds >= 0
        self._monotonic += seconds
        self._now_ms += int(seconds * 1000)

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock; no time passes."""
        self._now_ms += int(seconds * 1000)
