"""What an operator may set for a meta server.

Types and limits stand with the fields and are checked by msgspec (`core/settings.py`); here is said
which settings need each other. Never reads a file or the environment: `node/config.py` does.
"""

from dataclasses import dataclass, field
from typing import Annotated

from ternmq.core.errors import BadConfig
from ternmq.core.settings import about, check
from ternmq.rpc.config import ListenerConfig

HEARTBEAT_MS = 500
DEAD_AFTER_MS = 3_000
TOPICS_MAX = 100_000
REFRESH_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaConfig:
    """Where a meta server keeps names, and when it takes other servers for dead."""

    listener: ListenerConfig = field(default_factory=ListenerConfig)

    registry: Annotated[
        str,
        about("where meta keeps names: sqlite, postgresql, mysql or zookeeper url; empty: a file"),
    ] = ""
    topics_max: Annotated[
        int, about("meta: topics that there may be, our own hidden ones counted", 1, 10_000_000)
    ] = TOPICS_MAX
    server_heartbeat_ms: Annotated[
        int, about("meta: how often a server says that it is there", 100, 60_000)
    ] = HEARTBEAT_MS
    server_dead_after_ms: Annotated[
        int, about("meta: a server that was silent for so long is dead", 300, 600_000)
    ] = DEAD_AFTER_MS

    registry_refresh_ms: Annotated[
        int, about("meta: a registry that tells its news is looked at all the same", 100, 3_600_000)
    ] = REFRESH_MS
    registry_clients: Annotated[
        bool, about("meta: clients are ephemeral nodes in ZooKeeper, for people who look there")
    ] = False

    def __post_init__(self) -> None:
        check(self)
        if self.server_dead_after_ms < 2 * self.server_heartbeat_ms:
            raise BadConfig("server_dead_after_ms must be at least twice server_heartbeat_ms")
