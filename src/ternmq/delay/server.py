"""A delay server while a block runs: parts start in the order written here and stop in reverse.

Nothing but composition: open the store (which recovers and catches up), then the parts, then
listen. It is announced to clients elsewhere. On the way out: no new requests, what waits is
written, a last checkpoint. Rows that are due during a stop go out after the next start.
"""

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

from ternmq.batch.layout import BATCH_SIZE_MAX
from ternmq.client.links import Links
from ternmq.core.clock import Clock
from ternmq.core.config import NodeConfig
from ternmq.core.errors import TernError
from ternmq.core.lifecycle import background
from ternmq.core.log import get_logger
from ternmq.delay.accept import Acceptor
from ternmq.delay.brokers import Brokers
from ternmq.delay.changes import Changes
from ternmq.delay.decisions import Decisions
from ternmq.delay.dispatch import Dispatcher
from ternmq.delay.engine import Engine
from ternmq.delay.find import Finder
from ternmq.delay.loader import Loader
from ternmq.delay.paths import DelayPaths
from ternmq.delay.router import DelayRouter
from ternmq.delay.scrape import delay_figures
from ternmq.delay.store import DelayStore
from ternmq.delay.taker import Taker
from ternmq.delay.ticker import Ticker
from ternmq.discovery.directory import TopicDirectory
from ternmq.metrics.samples import Samples, Source
from ternmq.rpc.address import join_address
from ternmq.rpc.figures import server_figures
from ternmq.rpc.limits import ServerLimits
from ternmq.rpc.peer import Peer
from ternmq.rpc.server import Listener, listening
from ternmq.storage.disk import Disk, RealDisk
from ternmq.storage.figures import log_figures
from ternmq.wire import commands as wire
from ternmq.wire.frame import Frame

log = get_logger()

STOP_WITHIN_S = 5.0
TAKE_TIMEOUT_S = 5.0


@dataclass(slots=True)
class DelayServer:
    """A running delay server, as its owner sees it."""

    address: tuple[str, int]
    engine: Engine
    figures: Source


class Door:
    """Lets clients in and hands their frames to the router."""

    def __init__(self, config: NodeConfig, router: DelayRouter) -> None:
        self._router = router
        self._welcome = wire.Welcome(
            protocol=wire.PROTOCOL_VERSION, version=version("ternmq"), role="delay",
            node=config.broker_group, broker_group=config.broker_group, epoch=1,
            heartbeat_ms=config.heartbeat_ms, batch_size_max=BATCH_SIZE_MAX,
        )  # fmt: skip

    def welcome(self, peer: Peer, hello: wire.Hello) -> wire.Welcome:
        return self._welcome

    def frame(self, peer: Peer, frame: Frame) -> None:
        self._router.route(peer, frame)

    def lost(self, peer: Peer) -> None:
        """Nothing is kept for a peer."""


@asynccontextmanager
async def serving_delay(
    config: NodeConfig,
    *,
    directory: TopicDirectory,
    brokers: str,
    clock: Clock,
    disk: Disk | None = None,
) -> AsyncIterator[DelayServer]:
    """Run a delay server while the block runs; `brokers` is the url of the meta server."""
    disk = disk or RealDisk()
    wal = Path(config.delay_wal_dir) if config.delay_wal_dir else None
    paths = DelayPaths(config.data_dir / "delay", wal)
    store = await asyncio.get_running_loop().run_in_executor(
        None,
        partial(
            DelayStore.open, disk, paths, clock=clock, hour_ms=config.delay_hour_ms,
            segment_size=config.segment_size, min_free=config.disk_free_min,
        ),
    )  # fmt: skip
    parts = Parts(config, store, directory, brokers, clock)
    try:
        limits = ServerLimits(
            connections_max=config.connections_max,
            inbound_max=config.inbound_max,
            server_inbound_max=config.inbound_total_max,
            idle_timeout=max(30.0, 3 * config.heartbeat_ms / 1000),
        )
        door = Door(config, parts.router)
        async with listening(
            config.host, config.delay_port, door, limits=limits, clock=clock
        ) as listener:
            parts.listener = listener
            workers = {
                f"worker{number}": parts.dispatcher.run for number in range(config.delay_workers)
            }
            async with background(
                loader=parts.loader.run,
                ticker=parts.ticker.run,
                brokers=parts.brokers.run,
                taker=parts.taker.run,
                **workers,
            ):
                log.info("delay server ready", address=join_address(*listener.address))
                yield DelayServer(listener.address, parts.engine, parts.scrape)
                await parts.stop(listener)
    finally:
        await parts.close()


class Parts:
    """The parts of one delay server, wired."""

    def __init__(
        self,
        config: NodeConfig,
        store: DelayStore,
        directory: TopicDirectory,
        url: str,
        clock: Clock,
    ) -> None:
        self._config = config
        self._clock = clock
        self._started_at_ms = clock.now_ms()
        self.listener: Listener | None = None
        self.store = store
        # What came after the last checkpoint before a crash is known by number only.
        store.names.update({topic.id: topic.name for topic in directory.topics()})
        self.engine = Engine(store, hour_ms=config.delay_hour_ms, fragments=config.delay_fragments)
        self.loader = Loader(
            self.engine, clock=clock, checkpoint_interval_s=config.checkpoint_interval_ms / 1000
        )
        self.acceptor = Acceptor(
            store, directory=directory, clock=clock, max_days=config.delay_max_days,
            auto_create=config.auto_create_topics, on_safe=self.loader.wake,
        )  # fmt: skip
        self.taker = Taker(
            config.broker_group, links=Links(url, app=wire.DISPATCHER, timeout=TAKE_TIMEOUT_S),
            directory=directory, acceptor=self.acceptor, store=store,
        )  # fmt: skip
        self.decisions = Decisions(self.engine, clock)
        self.loader.decide = self.decisions.put
        self.brokers = Brokers(url, clock=clock)
        self.dispatcher = Dispatcher(
            self.engine, self.decisions, self.brokers, clock=clock, workers=config.delay_workers
        )
        self.ticker = Ticker(
            self.engine, clock=clock, tick_ms=config.delay_tick_ms, wake=self.dispatcher.wake
        )
        self.finder = Finder(self.engine, self.loader)
        changes = Changes(
            self.engine, self.loader, self.decisions, self.finder, clock=clock,
            max_days=config.delay_max_days,
        )  # fmt: skip
        self.router = DelayRouter(
            acceptor=self.acceptor, changes=changes, finder=self.finder, status=self.status
        )

    async def stop(self, listener: Listener) -> None:
        """No new requests; clients are told; what was asked is answered."""
        self.router.stopping = True
        listener.stop_accepting()
        notice = wire.pack(wire.Notice(kind="stopping", text="the delay server is stopping"))
        for peer in list(listener.peers):
            peer.push(wire.Command.NOTICE, notice)
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                await self.router.finish()
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
        await asyncio.get_running_loop().run_in_executor(None, self.store.close)

    async def scrape(self, out: Samples) -> None:
        """Everything that Prometheus is shown of this server."""
        assert self.listener is not None
        status = self.status(wire.StatusQuery())
        server_figures(out, status, self.listener)
        log_figures(out, status.role, self.store.wal.messages)
        delay_figures(out, self.engine, self.dispatcher.lateness, self.ticker.watch.jumps)

    def status(self, query: wire.StatusQuery) -> wire.Status:
        """What this server says about itself."""
        failed = self.store.failed
        free, size = self.store.disk.free(self.store.paths.wal)
        state = "ok"
        if failed is not None:
            state = failed.message
        elif free < self._config.disk_free_min:
            state = f"disk almost full: {free} bytes free, messages are refused"
        usage = resource.getrusage(resource.RUSAGE_SELF)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        messages = self.store.wal.messages
        return wire.Status(
            node=self._config.broker_group, role="delay", state=state,
            address=join_address(*self.listener.address) if self.listener else "",
            data_dir=str(self._config.data_dir.absolute()), started_at_ms=self._started_at_ms,
            now_ms=self._clock.now_ms(), disk_free=free, disk_size=size,
            cpu_s=usage.ru_utime + usage.ru_stime, memory=pages * resource.getpagesize(),
            connections=len(self.listener.peers) if self.listener else 0,
            log_start=messages.start_offset, log_end=messages.safe_offset,
            clock_jumps=self.ticker.watch.jumps, dispatching=self.engine.dispatching(),
        )  # fmt: skip
