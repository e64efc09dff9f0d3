"""A member of a broker group while a block runs: joins, listens, leads or follows until it stops.

The listener stays through all changes of role; what clients ask is answered by the role of now
(`role_loop`). The block begins when the first role serves. Leaving it lets the role end in order: a
master tells clients and answers what waits before the store is closed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from ternmq.core.clock import Clock
from ternmq.core.errors import AlreadyExists, Conflict, TernError
from ternmq.core.lifecycle import background
from ternmq.core.log import get_logger
from ternmq.discovery.cluster_access import ClusterAccess
from ternmq.discovery.directory import ClusterDirectory
from ternmq.discovery.server_guard import guarding
from ternmq.metrics.samples import Samples
from ternmq.replication.config import MemberConfig
from ternmq.replication.member.group_record import BrokerGroupRecord
from ternmq.replication.member.member_context import MemberContext
from ternmq.replication.member.member_location import MemberLocation
from ternmq.replication.member.role_switch import RoleSwitch
from ternmq.replication.member.server_kind import ServerKind
from ternmq.replication.roles.role_loop import run_roles
from ternmq.rpc.address import join_address
from ternmq.rpc.guarded.guard import Guard
from ternmq.rpc.guarded.guarded_peer import GuardedHandler
from ternmq.rpc.node_proof import NodeGate
from ternmq.rpc.server import make_listener, started
from ternmq.storage.files.disk import Disk
from ternmq.storage.files.member import MemberFile
from ternmq.storage.files.set_aside import finish_aside
from ternmq.wire.messages.standings import Member, Standing, standing_of

JOIN_WITHIN_S = 15.0
AGAIN_S = 1.0
STAY_S = 3.0

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberCluster:
    """How a member reaches its cluster."""

    directory: ClusterDirectory
    access: ClusterAccess
    app: str
    """What it calls itself towards other servers."""


class MemberServer:
    """A running server, as its owner sees it."""

    def __init__(self, context: MemberContext) -> None:
        self._context = context
        self.listener = context.listener
        self.address = context.listener.address
        self.member = context.me

    async def figures(self, out: Samples) -> None:
        """Everything that Prometheus is shown of it."""
        await self._context.scrape(out)

    def watch(self, say: Callable[[int], None]) -> None:
        """Call this, now and whenever it is another, with the epoch that is led here; 0: none."""
        self._context.watchers.append(say)
        say(self._context.epoch)


@asynccontextmanager
async def serving_member(
    server_kind: ServerKind,
    config: MemberConfig,
    place: MemberLocation,
    cluster: MemberCluster,
    *,
    clock: Clock,
    disk: Disk,
) -> AsyncIterator[MemberServer]:
    """Be a member while the block runs."""
    async with AsyncExitStack() as stack:
        guard = await stack.enter_async_context(
            guarding(
                cluster.directory,
                listener=config.listener,
                data_dir=place.data_dir,
                server=server_kind.role,
                secret=cluster.access.secret,
                clock=clock,
            )
        )
        context = await _join(
            server_kind, config, place, cluster, clock=clock, disk=disk, guard=guard
        )
        await stack.enter_async_context(started(context.listener, place.host, place.port))
        roles = asyncio.create_task(run_roles(context, server_kind), name="roles")
        try:
            await _first_role(context, roles)
            async with background(
                roles=partial(_watch, roles), member=partial(_stay_joined, context)
            ):
                address = join_address(*context.listener.address)
                event = server_kind.title + " ready"
                log.info(event, address=address, epoch=context.epoch)
                yield MemberServer(context)
        finally:
            context.stop.set()
            context.changed.set()
            await asyncio.wait([roles])
            if not roles.cancelled() and (failed := roles.exception()) is not None:
                log.error("a role failed", error=repr(failed))


async def _join(
    server_kind: ServerKind,
    config: MemberConfig,
    place: MemberLocation,
    cluster: MemberCluster,
    *,
    clock: Clock,
    disk: Disk,
    guard: Guard | None,
) -> MemberContext:
    loop, directory = asyncio.get_running_loop(), cluster.directory
    disk.mkdir(place.data_dir)
    member = await loop.run_in_executor(None, MemberFile.open, disk, server_kind.home)
    if await loop.run_in_executor(None, finish_aside, disk, server_kind.home):
        await loop.run_in_executor(None, member.note_damaged, False)
    record = BrokerGroupRecord(member)
    record.check(server_kind.home, place.broker_group, server_kind.kind)
    acks_from_memory = await loop.run_in_executor(None, server_kind.acks_from_memory)
    me = Member(id=member.id, name=place.address.replace(":", "-"), address=place.address)
    empty = Standing(broker_group=place.broker_group, kind=server_kind.kind)
    standing = await _joined(
        partial(_ask, server_kind, directory, record, empty, me, lacks=acks_from_memory)
    )
    if acks_from_memory and not standing.claims:
        standing = await _leave(directory, standing, member.id)
        await loop.run_in_executor(None, server_kind.note_acks_from_memory, False)
    await record.note(standing)
    listener = config.listener
    role_switch = RoleSwitch(
        place.broker_group, server_kind.role, heartbeat_ms=listener.heartbeat_ms
    )
    context = MemberContext(
        kind=server_kind.kind,
        config=config.replication,
        place=place,
        directory=directory,
        clock=clock,
        disk=disk,
        member=member,
        record=record,
        hello=cluster.access.greeting(cluster.app),
        role_switch=role_switch,
        listener=make_listener(
            role_switch if guard is None else GuardedHandler(role_switch, guard),
            limits=listener.limits,
            clock=clock,
            gate=NodeGate(
                cluster.access.secret,
                server_kind.role,
                place.broker_group,
                now=clock.monotonic,
                cluster=cluster.access.cluster,
            ),
            tls=cluster.access.tls,
        ),
        join=partial(_ask, server_kind, directory, record, empty, me),
        standing=standing,
    )
    directory.on_standing_changed(context.learn)
    heard = directory.standing(context.broker_group, context.kind)
    if heard is not None:  # It may have changed while it was written down.
        context.learn(heard)
    directory.on_topic_deleted(context.topic_deleted)
    directory.on_topic_changed(context.topic_changed)
    return context


async def _ask(
    server_kind: ServerKind,
    directory: ClusterDirectory,
    record: BrokerGroupRecord,
    group: Standing,
    me: Member,
    *,
    lacks: bool = False,
) -> Standing:
    """Join once, with what this disk says."""
    loop = asyncio.get_running_loop()
    epoch = await loop.run_in_executor(None, server_kind.data_epoch)
    ends = await loop.run_in_executor(None, server_kind.ends)
    claim = record.claim(data_epoch=epoch, ends=ends, lacks=lacks)
    return await directory.join_group(
        group.broker_group, group.kind, me, data_epoch=epoch, claim=claim
    )


async def _stay_joined(context: MemberContext) -> None:
    """A registry may be emptied or replaced by an old copy while its members run: they join it
    again, with what they know."""
    while True:
        await asyncio.sleep(STAY_S)
        try:
            if context.record.is_unknown_to(
                await context.directory.read_standing(context.broker_group, context.kind)
            ):
                context.learn(await context.join())
        except TernError as error:
            log.warning("not known to be a member", reason=error.message)


async def _leave(directory: ClusterDirectory, standing: Standing, member: str) -> Standing:
    """A crash may have taken what this member answered for from memory: others have it. Alone in
    the set there is nobody else to ask."""
    while member in standing.in_sync:
        if standing.in_sync == [member]:
            log.error(
                "after a crash this member may lack what it acknowledged from memory; nobody else "
                "is in sync, so it goes on with what it has",
                member=member,
            )
            break
        log.warning("left the in-sync set: what was acknowledged from memory may be lost here")
        try:
            standing = await directory.leave_in_sync(
                standing.broker_group, member, standing.epoch, kind=standing.kind
            )
        except Conflict as refused:
            now = standing_of(refused)
            if now is None or now == standing:
                raise
            standing = now
    return standing


async def _joined(join: Callable[[], Awaitable[Standing]]) -> Standing:
    """A member that was killed and comes back elsewhere counts as running for a while."""
    give_up = asyncio.get_running_loop().time() + JOIN_WITHIN_S
    while True:
        try:
            return await join()
        except AlreadyExists as error:
            if asyncio.get_running_loop().time() > give_up:
                raise
            log.warning("cannot join yet", reason=error.message)
            await asyncio.sleep(AGAIN_S)


async def _first_role(context: MemberContext, roles: "asyncio.Task[None]") -> None:
    """Wait until clients can be served; raises what kept the role from beginning."""
    ready = asyncio.create_task(context.ready.wait())
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
    """A role that fails ends the block: a server must not look alive with a dead part inside."""
    await asyncio.shield(roles)
