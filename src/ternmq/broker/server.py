"""A broker while a block runs: joins its group, listens, and leads or follows until told to stop.

Nothing but composition: what a broker is (`role`) put into what members of broker groups do
(`replication/roles`).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ternmq.broker.config import BrokerConfig
from ternmq.broker.log.write_pool import PooledDisk, WritePool
from ternmq.broker.role import BrokerKind
from ternmq.core.clock import Clock
from ternmq.discovery.cluster_access import ClusterAccess
from ternmq.discovery.directory import ClusterDirectory
from ternmq.replication.member.member_location import MemberLocation
from ternmq.replication.roles.member_server import MemberCluster, MemberServer, serving_member
from ternmq.storage.files.disk import Disk, RealDisk
from ternmq.storage.files.reserve import ReservedDisk
from ternmq.wire.messages.hello import BROKER


@asynccontextmanager
async def serve(
    config: BrokerConfig,
    place: MemberLocation,
    *,
    directory: ClusterDirectory,
    clock: Clock,
    disk: Disk | None = None,
    access: ClusterAccess,
) -> AsyncIterator[MemberServer]:
    """Run a broker while the block runs; by `access` it finds others."""
    home = place.data_dir / "broker"
    disk = disk or ReservedDisk(_machine(config.write_pool), home)
    kind = BrokerKind(config, home, clock=clock, disk=disk, access=access)
    cluster = MemberCluster(directory=directory, access=access, app=BROKER)
    async with serving_member(kind, config, place, cluster, clock=clock, disk=disk) as broker:
        yield broker


def _machine(write_pool: int) -> Disk:
    return PooledDisk(WritePool(write_pool)) if write_pool else RealDisk()
