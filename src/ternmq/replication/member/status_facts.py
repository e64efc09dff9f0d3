"""What every server of a group says about itself in STATUS, whatever its kind and role.

Worked out when asked for, from memory. What only a leader, a follower or a kind of server knows is
added by that one.
"""

import os
from dataclasses import dataclass
from typing import Any, Protocol

from ternmq.core.clock import Clock
from ternmq.core.process import own_cpu_s, own_memory
from ternmq.replication.member.member_location import MemberLocation
from ternmq.rpc.address import join_address
from ternmq.rpc.server import Listener
from ternmq.security.tls.server_tls import tls_facts
from ternmq.wire.messages.hello import ServerRole
from ternmq.wire.messages.stats import Status


class MeasuredLog(Protocol):
    """A message log, as far as its size is told."""

    @property
    def start_offset(self) -> int: ...

    @property
    def safe_offset(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusFacts:
    """The facts of one server."""

    role: ServerRole
    place: MemberLocation
    clock: Clock
    listener: Listener
    member: str
    """The id by which this server joined its group."""
    messages: MeasuredLog
    started_at_ms: int

    def status(self, state: str, disk: tuple[int, int], **more: Any) -> Status:
        """`disk`: bytes that are free, and all of them; `more`: what only this role has to say."""
        return Status(
            node=self.place.broker_group,
            role=self.role,
            state=state,
            address=join_address(*self.listener.address),
            data_dir=str(self.place.data_dir.absolute()),
            started_at_ms=self.started_at_ms,
            now_ms=self.clock.now_ms(),
            disk_free=disk[0],
            disk_size=disk[1],
            cpu_s=own_cpu_s(),
            memory=own_memory(),
            connections=len(self.listener.peers),
            log_start=self.messages.start_offset,
            log_end=self.messages.safe_offset,
            pid=os.getpid(),
            member=self.member,
            **tls_facts(self.listener.tls),
            **more,
        )
