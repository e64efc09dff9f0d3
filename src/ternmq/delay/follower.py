"""A delay server that follows: answers STATUS and derives its files from the safe logs.

The bytes come by `replication.following.replica_writer`. A thread of its own (`Standby`) makes
schedule logs and dispatch logs of them, writes checkpoints and removes what is no longer needed, so
that this member can lead at any moment: leading is opening the store again, which finds nearly
everything done. No hour is loaded and nothing is dispatched. STATUS is the only answer: what is
pending, and what was cancelled, the master knows. A replica that cannot read or write its files has
`failed`, and another member has to be the one to lead.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from ternmq.core.clock import Clock
from ternmq.core.errors import Corrupt, TernError
from ternmq.core.log import get_logger
from ternmq.delay.config import DelayConfig
from ternmq.delay.operations.status import DelayReplicaStatus
from ternmq.delay.router import follower_commands
from ternmq.delay.store.hour_owners import FollowingStore
from ternmq.metrics.samples import Samples
from ternmq.replication.following.replica_writer import ReplicaWriter
from ternmq.replication.member.member_context import MemberContext
from ternmq.replication.member.role_switch import FollowerRouter
from ternmq.replication.member.server_kind import FollowProgress, Loops
from ternmq.rpc.peer import Peer
from ternmq.rpc.prometheus import server_figures
from ternmq.wire.messages.stats import Status

log = get_logger()

HEALTH_S = 0.5
IDLE_S = 1.0
AFTER_ERROR_S = 1.0
LOOK_EACH_S = 1.0
T = TypeVar("T")


class DelayFollower:
    """A delay server as replica: `replication.member.server_kind.FollowerService`."""

    epoch = 0

    def __init__(
        self,
        context: MemberContext,
        following: FollowingStore,
        config: DelayConfig,
        progress: FollowProgress,
    ) -> None:
        self._context = context
        self._progress = progress
        self._store = following.store
        self._standby = Standby(
            following,
            clock=context.clock,
            checkpoint_interval_s=config.checkpoint_interval_ms / 1000,
        )
        self._status = DelayReplicaStatus(context, following.store)
        self.route = FollowerRouter(
            follower_commands(self.status),
            f"this server is a replica of delay server {context.broker_group!r}; "
            "ask for routes again",
        ).route

    def lost(self, peer: Peer) -> None:
        """Nothing is kept for a peer."""

    def on_safe(self, number: int, advanced: Any) -> None:
        self._standby.wake()

    @property
    def failed(self) -> TernError | None:
        return self._store.failed

    def loops(self, writer: ReplicaWriter) -> Loops:
        return {"standby": self._standby.run, "health": partial(self._run_health, writer)}

    async def _run_health(self, writer: ReplicaWriter) -> None:
        """A replica that cannot derive its files any more must not be thought able to lead."""
        while True:
            if self._store.failed is not None:
                writer.give_up(self._store.failed)
            await asyncio.sleep(HEALTH_S)

    def status(self) -> Status:
        return self._status.status(self._progress.trouble, self._progress.lag())

    async def scrape(self, out: Samples) -> None:
        server_figures(out, self.status(), self._context.listener)

    async def close(self) -> None:
        await self._standby.close()


class Standby:
    """Drives the scheduling thread of a replica, which owns its hours."""

    def __init__(
        self, following: FollowingStore, *, clock: Clock, checkpoint_interval_s: float
    ) -> None:
        self._following = following
        self._store = following.store
        self._clock = clock
        self._interval = checkpoint_interval_s
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tern-delay-schedule")
        self._more = asyncio.Event()

    def wake(self) -> None:
        """More is safe than before."""
        self._more.set()

    async def run(self) -> None:
        """Steps until cancelled."""
        checkpoint_at = self._clock.monotonic() + self._interval
        look_at = self._clock.monotonic()
        while True:
            busy = False
            try:
                self._more.clear()
                busy = await self._on_thread(self._following.follow_some)
                if self._clock.monotonic() >= look_at:
                    look_at = self._clock.monotonic() + LOOK_EACH_S
                    await self._on_thread(self._store.look)
                if self._clock.monotonic() >= checkpoint_at:
                    checkpoint_at = self._clock.monotonic() + self._interval
                    await self.checkpoint()
            except Corrupt as error:
                log.error("a replica cannot go on like its master", reason=error.message)
                self._store.give_up(error)
            except TernError as error:
                log.error("a replica cannot write what is safe", reason=error.message)
                await asyncio.sleep(AFTER_ERROR_S)
            if not busy:
                await self._idle(checkpoint_at)

    async def _idle(self, until: float) -> None:
        try:
            async with asyncio.timeout(max(0.01, min(IDLE_S, until - self._clock.monotonic()))):
                await self._more.wait()
        except TimeoutError:
            pass

    async def checkpoint(self, *, clean: bool = False) -> None:
        """Write down how far everything is and remove what is over."""
        following, store = self._following, self._store
        await self._on_thread(following.settle)
        if store.messages.synced_offset < store.messages.safe_offset:
            return  # It would say more than is true after a power cut.
        now = following.snapshot(clean=clean)  # No step is taken meanwhile.
        if now == store.known and not clean:
            return
        await self._on_thread(store.checkpoint, now)
        if store.known is now:
            await self._on_thread(following.remove, now.dropping)
            await self._on_thread(store.checkpoints.trim)

    async def _on_thread(self, job: Callable[..., T], *arguments: Any) -> T:
        return await self._loop.run_in_executor(self._pool, job, *arguments)

    async def close(self) -> None:
        """A last checkpoint; the store is closed by its owner."""
        try:
            await self.checkpoint(clean=True)
        except TernError as error:
            log.error("could not close cleanly; the next start recovers", error=error.message)
        self._pool.shutdown(wait=True)
