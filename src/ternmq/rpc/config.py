"""What an operator may set for every server that listens.

Types and limits stand with the fields and are checked by msgspec (`core/settings.py`). Brokers,
delay servers and meta servers share it. Never opens a socket.
"""

from dataclasses import dataclass, field
from typing import Annotated

from ternmq.core.errors import BadConfig
from ternmq.core.settings import about, check, size
from ternmq.core.units import GIB, MIB
from ternmq.rpc.limits import ServerLimits
from ternmq.security.access.oidc import OidcConfig

IDLE_S_MIN = 30.0
MISSED_MAX = 3
"""So many heartbeats may be missing before a client counts as gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """How many clients a server takes, and how much of each."""

    connections_max: Annotated[int, about("clients at one time", 1, 1_000_000)] = 10_000
    connections_per_address_max: Annotated[
        int, about("of one address, so that the others find room", 1, 1_000_000)
    ] = 8_000
    heartbeat_ms: Annotated[
        int, about("how often an idle client says that it is there", 100, 60_000)
    ] = 3_000
    inbound_max: Annotated[
        int, size("unanswered bytes of one client before reading from it pauses", 8 * MIB, GIB)
    ] = 16 * MIB
    inbound_total_max: Annotated[
        int, size("unanswered bytes of all clients together", 16 * MIB, 64 * GIB)
    ] = 256 * MIB

    security: Annotated[
        bool,
        about("everybody logs in and does what was granted; the same on all servers of a cluster"),
    ] = False
    oidc: OidcConfig = field(default_factory=OidcConfig)

    def __post_init__(self) -> None:
        check(self)
        if self.inbound_total_max < self.inbound_max:
            raise BadConfig("inbound_total_max must not be less than inbound_max")
        if self.oidc.oidc_issuer and not self.security:
            raise BadConfig("oidc_issuer is set and security is not: write security = true")

    @property
    def limits(self) -> ServerLimits:
        """The limits as a listener wants them."""
        return ServerLimits(
            connections_max=self.connections_max,
            address_connections_max=self.connections_per_address_max,
            inbound_max=self.inbound_max,
            server_inbound_max=self.inbound_total_max,
            idle_timeout=max(IDLE_S_MIN, MISSED_MAX * self.heartbeat_ms / 1000),
        )
