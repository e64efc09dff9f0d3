"""The settings of a gateway, checked before anything starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from ternmq.core.errors import BadConfig
from ternmq.core.units import DAY_MS
from ternmq.rpc.address import is_loopback, join_address

DELAY_MS_MAX = 731 * DAY_MS
POLL_MS = 10_000
PORT = 8081
"""What RocketMQ's own proxy listens on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Where it listens, which cluster it serves, and what clients are told."""

    url: str
    host: str = "127.0.0.1"
    port: int = PORT
    ordered_groups: tuple[str, ...] = ()
    """Patterns (`*`, `?`): new groups named so are ordered; what a group has been set to holds."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where new groups begin."""
    delay_ms_max: int = DELAY_MS_MAX
    poll_ms: int = POLL_MS
    """What push consumers are told to wait for messages."""
    access_keys: bool = False
    """Clients sign their calls, and each call is answered as the user who signed it; else all come
    as the gateway's own user."""
    topic_aliases: Mapping[str, str] = field(default_factory=dict)
    group_aliases: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not is_loopback(self.host):
            raise BadConfig(
                f"host is {self.host!r}: calls from elsewhere would come in unproved and in the "
                "clear. The gateway listens on loopback only: use 127.0.0.1"
            )
        if not 0 < self.delay_ms_max <= DELAY_MS_MAX:
            raise BadConfig(f"delay_ms_max is {self.delay_ms_max}; it can be 1 to {DELAY_MS_MAX}")
        if not 100 <= self.poll_ms <= 60_000:
            raise BadConfig(f"poll_ms is {self.poll_ms}; it can be 100 to 60000")

    @property
    def address(self) -> str:
        return join_address(self.host, self.port)

    def makes_ordered(self, group: str) -> bool:
        """Is a new group of this name ordered?"""
        return any(fnmatchcase(group, pattern) for pattern in self.ordered_groups)
