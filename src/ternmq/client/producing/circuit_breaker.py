"""A circuit breaker for one server: after a failure it gets nothing for a growing time.

    closed --failed--> open --time is over--> half-open --worked--> closed
                        ^                        |
                        +---------failed---------+    (twice as long, up to `REST_MAX_S`)

Half-open means that one request is let through, as a trial; the others go elsewhere until it is
answered, or `TRIAL_S` have passed without an answer. Pure: the caller says what time it is.
"""

from ternmq.core.retry import doubled

REST_MIN_S = 0.5
REST_MAX_S = 30.0
TRIAL_S = 5.0


class CircuitBreaker:
    """Whether one server is used, rests after failures, or is tried once."""

    __slots__ = ("_rests_until", "_tried_at", "failures")

    def __init__(self) -> None:
        self.failures = 0
        """In a row; 0 while it is well."""
        self._rests_until = 0.0
        self._tried_at: float | None = None

    @property
    def rests_until(self) -> float:
        return self._rests_until

    def fit(self, now: float) -> bool:
        """May it be given something now?"""
        if not self.failures:
            return True
        if now < self._rests_until:
            return False
        return self._tried_at is None or now - self._tried_at >= TRIAL_S

    def given(self, now: float) -> None:
        """The server gets something: the trial, if one is due."""
        if self.failures and now >= self._rests_until:
            self._tried_at = now

    def failed(self, now: float) -> None:
        """No connection, no answer, or it cannot store. What comes while it rests is old news."""
        if self.failures and now < self._rests_until:
            return
        self.failures += 1
        self._rests_until = now + doubled(self.failures - 1, first=REST_MIN_S, most=REST_MAX_S)
        self._tried_at = None

    def worked(self) -> None:
        """The server stored something."""
        self.failures = 0
        self._tried_at = None
