"""What one caller may cost a server of calls, and all of them together; every bound has a name."""

from dataclasses import dataclass

from ternmq.core.units import KIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """Bounds of one listener."""

    streams_max: int = 2_048
    """Calls of one connection at one time; those count that were given up and still end."""
    calls_max: int = 20_000
    """Of all connections, streams and polls included."""
    connections_max: int = 8_192
    header_list_max: int = 64 * KIB
    """Bytes of the headers of one call."""
    header_block_max: int = 64 * KIB
    """The same as they come, in one frame and those that continue it."""
    continuations_max: int = 32
    """Frames that continue one block of headers."""
    window: int = 256 * KIB
    """Bytes that one call may send ahead of what was read of it."""
    connection_window: int = MIB
    requests_held_max: int = 256 * MIB
    """Bytes of requests that are not whole yet, of all connections."""
    answers_held_max: int = 256 * MIB
    """Bytes of answers that their callers do not read, likewise."""
    gathered_max: int = 64 * KIB
    """Bytes that a stream of answers is ahead of its caller, beside one message."""
    write_high: int = 256 * KIB
    """Bytes on the way to one connection; above it nothing is read from it."""
    arrive_s: float = 10.0
    """From connected to the first words."""
    half_s: float = 20.0
    """A frame or a block of headers that was begun."""
    stalled_s: float = 30.0
    """Answers wait, and the caller takes nothing of them."""
    ping_after_s: float = 60.0
    """Of silence; then it is asked whether it is there."""
    silent_s: float = 90.0
    linger_s: float = 1.0
    """At the end, for what was written."""
    sweep_s: float = 1.0


class HeldBytes:
    """What all connections of one listener hold."""

    __slots__ = ("answers", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.answers = 0
