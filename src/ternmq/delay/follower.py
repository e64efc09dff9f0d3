"""What a delay server that follows does besides copying: says who it is, derives files of the logs.

It dispatches nothing and answers STATUS only: what is pending, and what was cancelled, its master
knows.
"""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from ternmq.core.errors import NotMaster, TernError
from ternmq.core.process import own_cpu_s, own_memory
from ternmq.delay.store.standby import Standby
from ternmq.delay.store.store import DelayStore
from ternmq.metrics.samples import Samples
from ternmq.replication.following.replica_writer import ReplicaWriter
from ternmq.replication.member.member_context import MemberContext
from ternmq.replication.member.server_kind import Loops
from ternmq.rpc.address import join_address
from ternmq.rpc.peer import Peer
from ternmq.rpc.prometheus import server_figures
from ternmq.wire.frame import Frame
from ternmq.wire.messages.stats import Status
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack

HEALTH_S = 0.5
_OF_MEMBERS = (Command.FOLLOW, Command.HANDOVER, Command.BASE_OPEN, Command.BASE_READ)


class DelayFollower:
    """A delay server as replica: `FollowerService`."""

    epoch = 0

    def __init__(self, site: MemberContext, store: DelayStore) -> None:
        self._site = site
        self._store = store
        self._standby = Standby(
            store,
            clock=site.clock,
            checkpoint_interval_s=site.config.checkpoint_interval_ms / 1000,
        )
        self._started_at_ms = site.clock.now_ms()
        self.lag: Callable[[], int] = lambda: -1
        self.trouble = "not following yet"

    def route(self, peer: Peer, frame: Frame) -> None:
        if frame.command == Command.STATUS:
            peer.answer(frame.command, frame.correlation, pack(self.status()))
            return
        error = NotMaster(
            f"this server is a replica of delay server {self._site.group!r}; ask for routes again"
        )
        if frame.command in _OF_MEMBERS:
            raise error
        peer.close(error)  # A client of the master: let it look where that is.

    def lost(self, peer: Peer) -> None:
        """Nothing is kept for a peer."""

    def on_safe(self, number: int, told: Any) -> None:
        self._standby.wake()

    @property
    def failed(self) -> TernError | None:
        return self._store.failed

    def loops(self, intake: ReplicaWriter) -> Loops:
        return {"standby": self._standby.run, "health": partial(self._run_health, intake)}

    async def _run_health(self, intake: ReplicaWriter) -> None:
        """Whose files cannot be derived any more must not be thought able to lead."""
        while True:
            if self._store.failed is not None:
                intake.give_up(self._store.failed)
            await asyncio.sleep(HEALTH_S)

    def status(self) -> Status:
        """What this replica says about itself."""
        config, messages = self._site.config, self._store.messages
        free, size = self._site.disk.free(config.data_dir)
        return Status(
            node=config.broker_group,
            role="delay",
            state=f"replica: {self.trouble}" if self.trouble else "ok",
            address=join_address(*self._site.listener.address),
            data_dir=str(config.data_dir.absolute()),
            started_at_ms=self._started_at_ms,
            now_ms=self._site.clock.now_ms(),
            disk_free=free,
            disk_size=size,
            cpu_s=own_cpu_s(),
            memory=own_memory(),
            connections=len(self._site.listener.peers),
            log_start=messages.start_offset,
            log_end=messages.safe_offset,
            epoch=self._site.member.accepted_epoch,
            pid=os.getpid(),
            member=self._site.me,
            lag=self.lag(),
        )

    async def scrape(self, out: Samples) -> None:
        server_figures(out, self.status(), self._site.listener)

    async def close(self) -> None:
        await self._standby.close()
