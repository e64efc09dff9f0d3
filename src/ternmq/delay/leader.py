"""The parts of a delay server that leads, wired; each is handed the two or three things it uses.

Nothing but composition. On the way out: no new requests, what waits is written, a last checkpoint.
Rows that are due during a stop go out after the next start. The store is opened and closed by
whoever made them.
"""

import asyncio
import os

from ternmq.client.transport.cluster import Cluster
from ternmq.core.clock import Clock
from ternmq.core.config import NodeConfig
from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.core.process import own_cpu_s, own_memory
from ternmq.delay.dispatching.broker_senders import BrokerSenders
from ternmq.delay.dispatching.decide import Decisions
from ternmq.delay.dispatching.dispatch import Dispatcher
from ternmq.delay.intake.accept import Acceptor
from ternmq.delay.intake.take_committed import CommittedTaker
from ternmq.delay.operations.changes import Changes
from ternmq.delay.operations.find import DelayFinder
from ternmq.delay.operations.prometheus import delay_figures
from ternmq.delay.router import DelayRouter
from ternmq.delay.store.store import DelayStore
from ternmq.delay.timing.engine import Engine
from ternmq.delay.timing.scheduler import Scheduler
from ternmq.delay.timing.ticker import Ticker
from ternmq.discovery.directory import TopicDirectory
from ternmq.metrics.samples import Samples
from ternmq.replication.commit_gate import CommitGate
from ternmq.rpc.address import join_address
from ternmq.rpc.prometheus import server_figures
from ternmq.rpc.server import Listener
from ternmq.storage.messages.figures import log_figures
from ternmq.wire.messages.hello import DISPATCHER, Notice
from ternmq.wire.messages.stats import Status, StatusQuery
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack

log = get_logger()

STOP_WITHIN_S = 5.0
TAKE_TIMEOUT_S = 5.0


class DelayParts:
    """The parts of one delay server, wired."""

    def __init__(
        self,
        config: NodeConfig,
        store: DelayStore,
        directory: TopicDirectory,
        url: str,
        clock: Clock,
        safety: CommitGate | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._started_at_ms = clock.now_ms()
        self._safety = safety
        self.member, self.epoch = "", 0
        self.listener: Listener | None = None
        self.store = store
        # What came after the last checkpoint before a crash is known by number only.
        store.names.update({topic.id: topic.name for topic in directory.topics()})
        self.engine = Engine(store, hour_ms=config.delay_hour_ms, fragments=config.delay_fragments)
        self.loader = Scheduler(
            self.engine, clock=clock, checkpoint_interval_s=config.checkpoint_interval_ms / 1000
        )
        self.acceptor = Acceptor(
            store,
            directory=directory,
            clock=clock,
            max_days=config.delay_max_days,
            auto_create=config.auto_create_topics,
            on_safe=self.loader.wake,
            safety=safety,
        )
        self.taker = CommittedTaker(
            config.broker_group,
            links=Cluster(url, app=DISPATCHER, timeout=TAKE_TIMEOUT_S),
            directory=directory,
            acceptor=self.acceptor,
            store=store,
        )
        self.decisions = Decisions(self.engine, clock, safety)
        self.loader.decide = self.decisions.put
        self.brokers = BrokerSenders(url, clock=clock)
        self.dispatcher = Dispatcher(
            self.engine, self.decisions, self.brokers, clock=clock, workers=config.delay_workers
        )
        self.ticker = Ticker(
            self.engine, clock=clock, tick_ms=config.delay_tick_ms, wake=self.dispatcher.wake
        )
        self.finder = DelayFinder(self.engine, self.loader)
        changes = Changes(
            self.engine,
            self.loader,
            self.decisions,
            self.finder,
            clock=clock,
            max_days=config.delay_max_days,
        )
        self.router = DelayRouter(
            acceptor=self.acceptor, changes=changes, finder=self.finder, status=self.status
        )

    async def stop(self, listener: Listener) -> None:
        """No new requests; clients are told; what was asked is answered."""
        self.router.stopping = True
        listener.stop_accepting()
        notice = pack(Notice(kind="stopping", text="the delay server is stopping"))
        for peer in list(listener.peers):
            peer.push(Command.NOTICE, notice)
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                await self.router.finish()
                await self.acceptor.rounds.flush()
                await self.decisions.rounds.flush()
        except TimeoutError:
            log.warning("requests cut off by stopping")

    async def close(self) -> None:
        await self.brokers.close()
        await self.taker.close()
        await self.acceptor.close()
        await self.decisions.close()
        self.dispatcher.close()
        self.finder.close()
        try:
            await self.loader.checkpoint(clean=True)
        except TernError as error:
            log.error("could not close cleanly; the next start recovers", error=error.message)
        self.loader.close()

    async def scrape(self, out: Samples) -> None:
        """Everything that Prometheus is shown of this server."""
        assert self.listener is not None
        status = self.status(StatusQuery())
        server_figures(out, status, self.listener)
        log_figures(out, status.role, self.store.wal.messages)
        delay_figures(out, self.engine, self.dispatcher.lateness, self.ticker.watch.jumps)

    def status(self, query: StatusQuery) -> Status:
        """What this server says about itself."""
        failed = self.store.failed
        free, size = self.store.disk.free(self.store.paths.wal)
        state = "ok"
        if failed is not None:
            state = failed.message
        elif free < self._config.disk_free_min:
            state = f"disk almost full: {free} bytes free, messages are refused"
        elif self._safety is not None and self._safety.refusal is not None:
            state = f"read-only: {self._safety.refusal.message}"
        messages = self.store.wal.messages
        return Status(
            node=self._config.broker_group,
            role="delay",
            state=state,
            address=join_address(*self.listener.address) if self.listener else "",
            data_dir=str(self._config.data_dir.absolute()),
            started_at_ms=self._started_at_ms,
            now_ms=self._clock.now_ms(),
            disk_free=free,
            disk_size=size,
            cpu_s=own_cpu_s(),
            memory=own_memory(),
            connections=len(self.listener.peers) if self.listener else 0,
            log_start=messages.start_offset,
            log_end=messages.safe_offset,
            clock_jumps=self.ticker.watch.jumps,
            dispatching=self.engine.dispatching(),
            epoch=self.epoch,
            pid=os.getpid(),
            member=self.member,
        )
