"""Which servers were heard lately, by this meta server or another one.

Somebody is dead after `dead_after_ms` of silence, or at once when it said goodbye. A meta server
that has just started, or was stopped itself for a while, has heard nobody and judges nobody dead
until that time has passed. Never decides about data: a wrong guess costs a change of master.
"""

from ternmq.core.clock import Clock
from ternmq.meta.config import DEAD_AFTER_MS

ALWAYS = float("inf")
TOLD_S = 1.0
"""What another meta server tells may be off by so much: it waited for the registry."""


class Liveness:
    """Last signs of life, by member id."""

    def __init__(self, clock: Clock, *, dead_after_ms: int = DEAD_AFTER_MS) -> None:
        self._clock = clock
        self.dead_after_ms = dead_after_ms
        self._since = self._looked = clock.monotonic()
        self._heard: dict[str, float] = {}
        self._left: dict[str, float] = {}

    def heard(self, member_id: str) -> None:
        self._left.pop(member_id, None)
        self._heard[member_id] = self._clock.monotonic()

    def stays(self, member_id: str) -> None:
        """The member is part of this process: there until it leaves."""
        self._left.pop(member_id, None)
        self._heard[member_id] = ALWAYS

    def left(self, member_id: str) -> None:
        """The member said that it leaves."""
        self._heard.pop(member_id, None)
        self._left[member_id] = self._clock.monotonic()

    def may_be_alive(self, member_id: str) -> bool:
        if member_id in self._left:
            return False
        return self._heard.get(member_id, self._since) >= self.horizon()

    def may_be_alive_elsewhere(self, member_id: str, silent_s: float | None) -> bool:
        """Another meta server heard it so many seconds ago; None: lately. A goodbye that only we
        were told counts unless it was heard again after that."""
        left = self._left.get(member_id)
        if left is not None:
            return silent_s is not None and silent_s + TOLD_S < self._clock.monotonic() - left
        return silent_s is None or silent_s < self.dead_after_ms / 1000

    def is_heard(self, member_id: str) -> bool:
        """The member was heard by us, lately; not only that nothing is known."""
        return member_id in self._heard and self.may_be_alive(member_id)

    def horizon(self) -> float:
        """Servers heard before this are dead. Looked at again and again: when we were stopped
        ourselves, what others said meanwhile still waits to be read."""
        now = self._clock.monotonic()
        if now - self._looked > self.dead_after_ms / 2000:
            self._since = now
        self._looked = now
        if now - self._since < self.dead_after_ms / 1000:
            return -ALWAYS
        return now - self.dead_after_ms / 1000
