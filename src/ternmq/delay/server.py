"""A delay server while a block runs: joins its group, listens, leads or follows until it stops.

Nothing but composition: what a delay server is (`role`) put into what members of groups do
(`replication.roles.member_server`). It is announced to clients elsewhere.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ternmq.core.clock import Clock
from ternmq.delay.config import DelayConfig
from ternmq.delay.role import DelayKind
from ternmq.discovery.cluster_access import ClusterAccess
from ternmq.discovery.directory import ClusterDirectory
from ternmq.replication.member.member_location import MemberLocation
from ternmq.replication.roles.member_server import MemberCluster, MemberServer, serving_member
from ternmq.storage.files.disk import Disk, RealDisk
from ternmq.storage.files.reserve import ReservedDisk
from ternmq.wire.messages.hello import DISPATCHER


@asynccontextmanager
async def serving_delay(
    config: DelayConfig,
    place: MemberLocation,
    *,
    directory: ClusterDirectory,
    clock: Clock,
    disk: Disk | None = None,
    access: ClusterAccess,
) -> AsyncIterator[MemberServer]:
    """Run a delay server while the block runs; by `access` it finds brokers."""
    home = place.data_dir / "delay"
    disk = disk or ReservedDisk(RealDisk(), home)
    kind = DelayKind(config, home, clock=clock, disk=disk, access=access)
    cluster = MemberCluster(directory=directory, access=access, app=DISPATCHER)
    async with serving_member(kind, config, place, cluster, clock=clock, disk=disk) as delay:
        yield delay
