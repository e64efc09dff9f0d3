"""Time, handed in. Wall-clock milliseconds label things; the monotonic clock measures waiting."""

import time
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """What code may ask about time. Tests hand in one that they turn themselves."""

    def now_ms(self) -> int:
        """Wall clock, UTC, milliseconds since 1970. May jump."""

    def monotonic(self) -> float:
        """Seconds that only ever go forward. Says nothing about the date."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
