"""How many frames that carry nothing one connection may send.

Pings, settings, resets, window updates, empty frames: each costs the sender next to nothing and us
some microseconds, so they are paid for. A connection begins with an allowance, which grows with
time, with every call that was answered and with every frame of data that we send it: an honest
client never runs out, however fast it is. One that opens calls and resets them earns nothing.

The moment is handed in. Pure.
"""

from ternmq.rpc.http2.frames import ConnectionFault, FaultCode

ALLOWANCE = 4_000
PER_SECOND = 500
FOR_CALL = 6
FOR_DATA = 2

PING = 1
SETTINGS = 20
RESET = 4
OTHER = 1


class FrameAllowance:
    """What is left of it for one connection."""

    __slots__ = ("_left", "_since")

    def __init__(self, now: float) -> None:
        self._left: float = ALLOWANCE
        self._since = now

    def earn(self, amount: int) -> None:
        if self._left < ALLOWANCE:
            self._left += amount

    def spend(self, cost: int, now: float) -> None:
        """Raises `ConnectionFault` where nothing is left."""
        self._left -= cost
        if self._left < 0:
            self._left = min(ALLOWANCE, self._left + (now - self._since) * PER_SECOND)
            self._since = now
            if self._left < 0:
                raise ConnectionFault(
                    FaultCode.ENHANCE_YOUR_CALM, "too many frames that carry nothing"
                )
