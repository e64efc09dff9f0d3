"""The bounds of a server: how many peers, how many bytes of theirs, how long it waits for them."""

from dataclasses import dataclass

from ternmq.core.errors import BadConfig
from ternmq.core.units import KIB, MIB
from ternmq.wire.frame import FRAME_SIZE_MAX

HELLO_SIZE_MAX = 4 * KIB
"""The largest frame before HELLO was answered: strangers get no memory."""
TLS_HELLO_SIZE_MAX = 16 * KIB
"""The same over TLS, where a HELLO may carry a token."""

LEAVING_MAX = 1_000
"""Peers that were told to go and may still read why; beyond it they are cut without a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Times are seconds, sizes bytes."""

    connections_max: int = 10_000
    address_connections_max: int = 8_000
    """Of one address."""
    hello_timeout: float = 10.0
    frame_timeout: float = 30.0
    """From the first byte of a frame to its last; likewise for a peer that stops reading."""
    idle_timeout: float = 30.0
    """Peers send PING when they have nothing else to say."""
    crowded_timeout: float = 5.0
    """Replaces frame_timeout while the server-wide bound is reached."""
    linger: float = 2.0
    """How long a closed peer may take to read why."""
    sweep: float = 1.0
    """How often the times above are looked at; nothing is closed early, all up to this late."""
    inbound_max: int = 16 * MIB
    """Per peer: bytes accepted and not yet answered; above it reading pauses."""
    server_inbound_max: int = 256 * MIB
    """The same for all peers together, half-received frames included."""
    write_high: int = 4 * MIB
    """Unsent answers above which a peer counts as not writable and is not read from."""
    write_max: int = 64 * MIB
    """Unsent answers above which a peer is cut."""
    server_write_max: int = 256 * MIB
    """Unsent answers of all peers that do not read, together; above it the longest stalled go."""
    closes_logged_max: int = 20
    """Log lines about closed peers per second; more are counted."""

    def __post_init__(self) -> None:
        if self.connections_max < 1:
            raise BadConfig(f"connections_max must be at least 1, got {self.connections_max}")
        if self.inbound_max < FRAME_SIZE_MAX or self.server_inbound_max < self.inbound_max:
            raise BadConfig(
                f"inbound_max must be at least {FRAME_SIZE_MAX} (one frame) and server_inbound_max "
                f"at least inbound_max, got {self.inbound_max} and {self.server_inbound_max}"
            )
        if self.write_max < self.write_high:
            raise BadConfig(f"write_max must be at least write_high, got {self.write_max}")
        for name in ("hello_timeout", "frame_timeout", "idle_timeout", "crowded_timeout", "sweep"):
            if getattr(self, name) <= 0:
                raise BadConfig(f"{name} must be more than 0 seconds, got {getattr(self, name)}")
