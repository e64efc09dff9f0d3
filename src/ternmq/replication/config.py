"""What an operator may set for a broker group, and for every member of one.

`ReplicationConfig` is for the roles of this package. `MemberConfig` is what brokers and delay
servers have in common; each of them adds what is its own (`broker.config`, `delay.config`).
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from ternmq.core.settings import about, check, size
from ternmq.core.units import GIB, HOUR_MS, MIB
from ternmq.rpc.config import ListenerConfig


class ReplicaLost(StrEnum):
    """What a master does without enough replicas in step."""

    READ_ONLY = "read-only"
    """Refuses messages until one is back."""
    CONTINUE = "continue"
    """Goes on alone: what it then takes is on one disk."""


class ReplicaAck(StrEnum):
    """When a message counts, besides being on the master's disk."""

    DISK = "disk"
    """Every in-sync replica has it on its disk."""
    MEMORY = "memory"
    """Every in-sync replica has it, perhaps not on its disk yet."""
    NONE = "none"
    """At once: replicas follow, and one that leads may lack something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """How the members of a broker group stay in step, and who leads."""

    replica_lost: Annotated[
        ReplicaLost, about("without a replica in step: read-only, or continue alone")
    ] = ReplicaLost.READ_ONLY
    replica_timeout_ms: Annotated[
        int, about("a replica that does not answer for so long is late", 100, HOUR_MS)
    ] = 3_000
    replica_ack: Annotated[
        ReplicaAck, about("a message counts when replicas have it on disk, in memory, or at once")
    ] = ReplicaAck.DISK
    aside_max: Annotated[
        int, about("so often a replica moves useless data aside by itself; 0: never", 0, 100)
    ] = 2
    failover: Annotated[
        bool, about("a replica leads when its master is dead; off: people decide")
    ] = True

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """What a broker and a delay server have in common."""

    listener: ListenerConfig = field(default_factory=ListenerConfig)
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)

    auto_create_topics: Annotated[bool, about("sending to an unknown topic makes it")] = True
    segment_size: Annotated[int, size("size of one message log file", 8 * MIB, 4 * GIB)] = GIB
    checkpoint_interval_ms: Annotated[
        int,
        about(
            "how often positions are noted, so that a start after a crash reads little",
            100,
            HOUR_MS,
        ),
    ] = 5_000
    disk_free_min: Annotated[
        int,
        size("with less free space messages are refused; consuming goes on", 0, 1024 * GIB),
    ] = 64 * MIB

    def __post_init__(self) -> None:
        check(self)
