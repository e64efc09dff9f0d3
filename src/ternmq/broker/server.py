"""A broker while a block runs: joins its group, listens, and leads or follows until told to stop.

The listener stays through all changes of role; what clients ask is answered by the role of now
(`roles`). The block begins when the first role serves. Leaving it lets the role end in order: a
master tells clients, answers waiting pulls and gives leases back before the store is closed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from ternmq.broker.door import Door
from ternmq.broker.roles import run_roles
from ternmq.broker.site import Site
from ternmq.core.clock import Clock
from ternmq.core.config import Flush, NodeConfig
from ternmq.core.errors import AlreadyExists, Conflict, Corrupt
from ternmq.core.lifecycle import background
from ternmq.core.log import get_logger
from ternmq.discovery.directory import ClusterDirectory
from ternmq.discovery.server_hello import server_hello
from ternmq.metrics.samples import Samples
from ternmq.rpc.address import join_address
from ternmq.rpc.limits import ServerLimits
from ternmq.rpc.server import Listener, listening
from ternmq.storage import checkpoint
from ternmq.storage.disk import Disk, RealDisk
from ternmq.storage.member import MemberFile
from ternmq.storage.paths import LOG_SUFFIX, Paths, bases, segment
from ternmq.wire.commands import BROKER
from ternmq.wire.standing import Member, Standing, standing_of

JOIN_WITHIN_S = 15.0
AGAIN_S = 1.0

log = get_logger()


class Broker:
    """A running broker, as its owner sees it."""

    def __init__(self, site: Site, listener: Listener) -> None:
        self._site = site
        self.listener = listener
        self.address = listener.address
        self.member = site.me

    async def figures(self, out: Samples) -> None:
        """Everything that Prometheus is shown of it."""
        await self._site.scrape(out)

    def watch(self, say: Callable[[int], None]) -> None:
        """Call this, now and whenever it is another, with the epoch that is led here; 0: none."""
        self._site.watchers.append(say)
        say(self._site.epoch)


@asynccontextmanager
async def serve(
    config: NodeConfig,
    *,
    directory: ClusterDirectory,
    address: str,
    clock: Clock,
    disk: Disk | None = None,
    url: str = "",
) -> AsyncIterator[Broker]:
    """Run a broker while the block runs; `address` is where others find it, by the meta servers at
    `url` it finds others."""
    disk = disk or RealDisk()
    site = await _join(config, directory, address, clock, disk)
    site.url = url
    limits = ServerLimits(
        connections_max=config.connections_max,
        inbound_max=config.inbound_max,
        server_inbound_max=config.inbound_total_max,
        idle_timeout=max(30.0, 3 * config.heartbeat_ms / 1000),
    )
    async with listening(
        config.host, config.broker_port, site.door, limits=limits, clock=clock
    ) as listener:
        site.door.listener = listener
        roles = asyncio.create_task(run_roles(site), name="roles")
        try:
            await _first_role(site, roles)
            async with background(roles=partial(_watch, roles)):
                log.info("broker ready", address=join_address(*listener.address), epoch=site.epoch)
                yield Broker(site, listener)
        finally:
            site.stop.set()
            site.changed.set()
            await asyncio.wait([roles])
            if not roles.cancelled() and (failed := roles.exception()) is not None:
                log.error("a role failed", error=repr(failed))


async def _join(
    config: NodeConfig, directory: ClusterDirectory, address: str, clock: Clock, disk: Disk
) -> Site:
    home = config.data_dir / "broker"
    loop = asyncio.get_running_loop()
    disk.mkdir(config.data_dir)
    member = await loop.run_in_executor(None, MemberFile.open, disk, home)
    epoch = await loop.run_in_executor(None, data_epoch, disk, Paths(home))
    me = Member(id=member.id, name=address.replace(":", "-"), address=address)
    forgetful = config.flush is Flush.ASYNC and disk.exists(Paths(home).unclean)
    standing = await _joined(directory, config.broker_group, me, epoch)
    if forgetful and member.id in standing.in_sync:
        standing = await _leave(directory, standing, member.id)
    hello = server_hello(BROKER)
    site = Site(
        config=config, directory=directory, clock=clock, disk=disk, member=member, hello=hello,
        door=Door(config), standing=standing,
    )  # fmt: skip
    directory.on_standing_changed(site.learn)
    directory.on_topic_deleted(lambda topic: site.topic_deleted(topic))
    directory.on_topic_changed(lambda topic: site.topic_changed(topic))
    return site


async def _leave(directory: ClusterDirectory, standing: Standing, member: str) -> Standing:
    """With flush = "async" a crash may have taken what was acknowledged: others have it. Alone in
    the set there is nobody else to ask."""
    try:
        return await directory.leave_in_sync(standing.broker_group, member, standing.epoch)
    except Conflict as refused:
        return standing_of(refused) or standing


async def _joined(directory: ClusterDirectory, group: str, me: Member, epoch: int) -> Standing:
    """A member that was killed and comes back elsewhere counts as running for a while."""
    give_up = asyncio.get_running_loop().time() + JOIN_WITHIN_S
    while True:
        try:
            return await directory.join_group(group, "realtime", me, data_epoch=epoch)
        except AlreadyExists as error:
            if asyncio.get_running_loop().time() > give_up:
                raise
            log.warning("cannot join yet", reason=error.message)
            await asyncio.sleep(AGAIN_S)


def data_epoch(disk: Disk, paths: Paths) -> int:
    """The last epoch that wrote something here, as far as a look tells; 0: there is nothing."""
    if not disk.exists(paths.message):
        return 0
    found = bases(disk.names(paths.message), LOG_SUFFIX)
    if not any(
        base or disk.open(segment(paths.message, base), create=False).size for base in found
    ):
        return 0
    if not disk.exists(paths.checkpoint):
        return 1
    try:
        return max(1, checkpoint.decode(disk.read(paths.checkpoint)).epoch)
    except Corrupt:
        return 1


async def _first_role(site: Site, roles: "asyncio.Task[None]") -> None:
    """Wait until clients can be served; raises what kept the role from beginning."""
    ready = asyncio.create_task(site.ready.wait())
    try:
        await asyncio.wait({roles, ready}, return_when=asyncio.FIRST_COMPLETED)
        if roles.done():
            roles.result()
    except asyncio.CancelledError:
        roles.cancel()
        raise
    finally:
        ready.cancel()


async def _watch(roles: "asyncio.Task[None]") -> None:
    """A role that fails ends the block: a broker must not look alive with a dead part inside."""
    await asyncio.shield(roles)
