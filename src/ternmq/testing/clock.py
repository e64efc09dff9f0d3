"""A clock that tests turn. The wall clock may jump; the monotonic one only goes forward."""

from math import inf

from ternmq.client.model.durations import Duration, seconds_of


class TurnedClock:
    """Stands still until a test turns it."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 1_000.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def turn(self, seconds: Duration) -> None:
        """Time passes, for both clocks: seconds or a timedelta."""
        seconds = seconds_of("seconds", seconds, 0, inf)
        self._monotonic += seconds
        self._now_ms += int(seconds * 1000)

    def jump(self, seconds: Duration) -> None:
        """The wall clock is set, maybe back; no time passes."""
        seconds = seconds_of("seconds", seconds, -inf, inf)
        self._now_ms += int(seconds * 1000)
