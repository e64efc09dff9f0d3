"""The parts of a delay server that leads, wired; each is handed the two or three things it uses.

Nothing but composition. On the way out: no new requests, what waits is written, a last checkpoint.
Rows that are due during a stop go out after the next start. The store is opened and closed by the
role (`role`).
"""

import asyncio

from ternmq.client.transport.cluster import Cluster
from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.delay.bootstrap_transfer import BootstrapLender
from ternmq.delay.config import DelayConfig
from ternmq.delay.dispatching.broker_senders import BrokerSenders
from ternmq.delay.dispatching.decide import Decisions
from ternmq.delay.dispatching.deleted_topics import DeletedTopics
from ternmq.delay.dispatching.dispatch import Dispatcher
from ternmq.delay.intake.accept import Acceptor
from ternmq.delay.intake.take_committed import CommittedTaker
from ternmq.delay.operations.changes import Changes
from ternmq.delay.operations.find import DelayFinder
from ternmq.delay.operations.status import DelayLeaderStatus
from ternmq.delay.router import DelayRouter
from ternmq.delay.store.hour_owners import LeadingStore
from ternmq.delay.timing.engine import Engine
from ternmq.delay.timing.scheduler import Scheduler
from ternmq.delay.timing.ticker import Ticker
from ternmq.discovery.cluster_access import ClusterAccess
from ternmq.replication.leading.leader import Leader
from ternmq.replication.member.figures import FigureInspection
from ternmq.replication.member.member_context import MemberContext
from ternmq.replication.member.server_kind import Loops, MemberCommands
from ternmq.rpc.server import Listener
from ternmq.wire.messages.hello import DISPATCHER, Notice
from ternmq.wire.messages.replication import DECISIONS, MESSAGES
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack

log = get_logger()

STOP_WITHIN_S = 5.0
TAKE_TIMEOUT_S = 5.0


class DelayParts:
    """The parts of one delay server, wired."""

    def __init__(
        self,
        context: MemberContext,
        leading: LeadingStore,
        leader: Leader,
        commands: MemberCommands,
        config: DelayConfig,
        access: ClusterAccess,
    ) -> None:
        """By `access` it finds brokers."""
        clock, store = context.clock, leading.store
        self._store = store
        self._config = config
        self._leader = leader
        # What came after the last checkpoint before a crash is known by number only.
        store.names.update({topic.id: topic.name for topic in context.directory.topics()})
        self._engine = Engine(
            leading, hour_ms=config.delay_hour_ms, fragments=config.delay_fragments
        )
        self._decisions = Decisions(self._engine, clock, leader)
        self._scheduler = Scheduler(
            self._engine,
            decide=self._decisions.put,
            clock=clock,
            checkpoint_interval_s=config.checkpoint_interval_ms / 1000,
        )
        self._acceptor = Acceptor(
            store,
            directory=context.directory,
            clock=clock,
            max_days=config.delay_max_days,
            auto_create=config.auto_create_topics,
            on_safe=self._scheduler.wake,
            gate=leader,
        )
        self._taker = CommittedTaker(
            context.broker_group,
            cluster=Cluster.of_server(access, app=DISPATCHER, timeout=TAKE_TIMEOUT_S),
            directory=context.directory,
            acceptor=self._acceptor,
            store=store,
        )
        self._senders = BrokerSenders(access, clock=clock)
        self._dispatcher = Dispatcher(
            self._engine,
            self._decisions,
            self._senders,
            DeletedTopics(context.directory, store.names),
            clock=clock,
            workers=config.delay_workers,
        )
        self._ticker = Ticker(
            self._engine, clock=clock, tick_ms=config.delay_tick_ms, wake=self._dispatcher.wake
        )
        self._finder = DelayFinder(self._engine, self._scheduler)
        self.lender = BootstrapLender(
            context.broker_group, leader.epoch, self._scheduler.bootstrap, self._expect
        )
        self.status = DelayLeaderStatus(
            context,
            self._engine,
            leader,
            epoch=leader.epoch,
            watch=self._ticker.watch,
            lateness=self._dispatcher.lateness,
        )
        self.router = self._router(context, commands)

    def _router(self, context: MemberContext, commands: MemberCommands) -> DelayRouter:
        changes = Changes(
            self._engine,
            self._scheduler,
            self._decisions,
            self._finder,
            clock=context.clock,
            max_days=self._config.delay_max_days,
        )
        return DelayRouter(
            acceptor=self._acceptor,
            changes=changes,
            finder=self._finder,
            lender=self.lender,
            status=self.status,
            figure_looks=FigureInspection(self.status.scrape, context.clock.monotonic),
            members=commands,
        )

    def _expect(self, member: str) -> None:
        """A replica that gets the files now follows from where the logs begin, later."""
        messages, decisions = self._store.messages, self._store.decisions
        self._leader.expect(
            member, {MESSAGES: messages.start_offset, DECISIONS: decisions.start_offset}
        )

    def loops(self) -> Loops:
        """What runs while clients are served."""
        workers = {
            f"worker{number}": self._dispatcher.run for number in range(self._config.delay_workers)
        }
        return {
            "scheduler": self._scheduler.run,
            "ticker": self._ticker.run,
            "senders": self._senders.run,
            "taker": self._taker.run,
            **workers,
        }

    async def stop(self, listener: Listener) -> None:
        """No new requests; clients are told; what was asked is answered."""
        self.router.stop()
        listener.stop_accepting()
        notice = pack(Notice(kind="stopping", text="the delay server is stopping"))
        for peer in list(listener.peers):
            peer.push(Command.NOTICE, notice)
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                await self.router.finish()
                await self._acceptor.rounds.flush()
                await self._decisions.rounds.flush()
        except TimeoutError:
            log.warning("requests cut off by stopping")

    async def close(self) -> None:
        await self.lender.close()
        await self._senders.close()
        await self._taker.close()
        await self._acceptor.close()
        await self._decisions.close()
        self._dispatcher.close()
        self._finder.close()
        try:
            await self._scheduler.checkpoint(clean=True)
        except TernError as error:
            log.error("could not close cleanly; the next start recovers", error=error.message)
        self._scheduler.close()
