"""A delay server as a member of its group: opens its files, leads or follows with them.

The rest (joining, leading, following, promotion) is in `replication`, the same as for brokers. Two
logs are copied: the messages as they arrived and the decisions about them. Everything else (hours,
dispatch logs) is derived from what counts of the two, by each member for itself. Never decides who
leads.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ternmq.core.clock import Clock
from ternmq.core.errors import Corrupt, DiskFailed, DiskFull, TernError
from ternmq.core.log import get_logger
from ternmq.core.units import GIB
from ternmq.delay.bootstrap_transfer import fetch
from ternmq.delay.config import DelayConfig
from ternmq.delay.follower import DelayFollower
from ternmq.delay.formats.paths import DelayPaths
from ternmq.delay.leader import DelayParts
from ternmq.delay.router import DelayRouter
from ternmq.delay.store.bootstrap_install import BootstrapInstall
from ternmq.delay.store.hour_owners import FollowingStore
from ternmq.discovery.cluster_access import ClusterAccess
from ternmq.discovery.directory import InUse
from ternmq.metrics.samples import Samples
from ternmq.replication.leading.leader import Leader
from ternmq.replication.member.member_context import MemberContext
from ternmq.replication.member.server_kind import CopiedLog, FollowProgress, Loops, MemberCommands
from ternmq.rpc.peer import Peer
from ternmq.rpc.server import Listener
from ternmq.storage.files.disk import Disk, is_removed
from ternmq.storage.log import leader_epochs
from ternmq.storage.log.leader_epochs import Starts
from ternmq.storage.log.recovery_report import RecoveryReport
from ternmq.storage.log.segmented_log import log_end
from ternmq.storage.messages.message_log import OnCorrupt
from ternmq.wire.messages.hello import ServerRole
from ternmq.wire.messages.replication import DECISIONS, MESSAGES, BaseOpen
from ternmq.wire.messages.standings import BrokerGroupKind
from ternmq.wire.messages.topics import Topic

KEEP = 2 * GIB
"""Of each log for members that are away; who is away for longer gets the files anew."""
NEEDED_S = 1.0
BASE = b"files"
"""Says that there is a base; the replica asks for it in pieces."""

log = get_logger()


class DelayKind:
    """What makes a member a delay server: `replication.member.server_kind.ServerKind`."""

    kind: BrokerGroupKind = "delay"
    role: ServerRole = "delay"
    title = "delay server"

    def __init__(
        self, config: DelayConfig, home: Path, *, clock: Clock, disk: Disk, access: ClusterAccess
    ) -> None:
        """By `access` it finds brokers."""
        self._config = config
        self._clock = clock
        self._disk = disk
        self._access = access
        self.home = home
        wal = Path(config.delay_wal_dir) if config.delay_wal_dir else None
        self._paths = DelayPaths(self.home, wal)

    def data_epoch(self) -> int:
        if not any(self.ends()):
            return 0
        path = self._paths.epochs
        try:
            return max(1, leader_epochs.decode(self._disk.read(path)).last)
        except (Corrupt, DiskFailed):  # Of a release before there were epochs.
            return 1

    def ends(self) -> list[int]:
        return [log_end(self._disk, each) for each in (self._paths.wal, self._paths.decisions)]

    def acks_from_memory(self) -> bool:
        return False  # What a delay server acknowledged is on disk.

    def note_acks_from_memory(self, acks_from_memory: bool) -> None:
        assert not acks_from_memory, "a delay server waits for its disks"

    def open(self, epoch: int, *, suffix: bool, on_corrupt: OnCorrupt) -> "DelayReplicatedStore":
        config = self._config
        following = FollowingStore.open(
            self._disk,
            self._paths,
            clock=self._clock,
            hour_ms=config.delay_hour_ms,
            segment_size=config.segment_size,
            min_free=config.disk_free_min,
            suffix=suffix,
        )
        return DelayReplicatedStore(following, config, self._access)

    def end(self) -> None:
        """Nothing is kept open for it."""

    async def reseed(self, context: MemberContext, base: bytes) -> None:
        standing = context.standing
        master = standing.member(standing.master)
        if master is None:
            return
        wanted = BaseOpen(
            broker_group=context.broker_group, member=context.me, epoch=standing.epoch
        )
        fetching = asyncio.ensure_future(
            fetch(
                master.address,
                context.hello,
                wanted,
                lambda manifest: BootstrapInstall(self._disk, self._paths, manifest),
            )
        )
        stopping = asyncio.ensure_future(context.stop.wait())
        try:
            await asyncio.wait({fetching, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            fetching.cancel()
            await asyncio.wait({fetching})
        if not fetching.cancelled():
            fetching.result()


class DelayReplicatedStore:
    """An open delay store: `replication.member.server_kind.ReplicatedStore`."""

    def __init__(
        self, following: FollowingStore, config: DelayConfig, access: ClusterAccess
    ) -> None:
        self._following = following
        self._config = config
        self._store = store = following.store
        self._access = access
        self.logs: Mapping[int, CopiedLog] = {
            MESSAGES: store.messages,
            DECISIONS: store.decisions,
        }
        self.tables = store.tables
        self.begin_epoch = store.begin_epoch

    @property
    def report(self) -> RecoveryReport:
        return self._store.report

    def close(self, *, again: bool) -> None:
        self._store.close()

    def look(self) -> TernError | None:
        with suppress(DiskFull, DiskFailed):
            self._store.look()
        failed = self._store.failed
        return failed if failed is not None and is_removed(failed) else None

    def adopt(
        self, cuts: Mapping[int, int], tables: dict[int, Starts], *, waits: bool = True
    ) -> None:
        self._store.truncate(cuts[MESSAGES], cuts[DECISIONS], waits=waits)
        self._store.adopt_epochs(tables)

    def base(self) -> bytes:
        return BASE

    async def reserve(self, context: MemberContext) -> int:
        epoch = max((starts[-1][0] for starts in self.tables().values() if starts), default=0)
        names = {id: name for id, name in self._store.names.items() if name}
        numbers = names.keys() | self._store.wal.counts.ends.keys()
        used = InUse(
            broker_group=context.broker_group,
            topic_ids=frozenset(numbers),
            group_id=0,
            epoch=epoch,
            kind=context.kind,
            names=names,
        )
        await context.directory.reserve(used)
        return epoch

    def leader_service(
        self, context: MemberContext, leader: Leader, commands: MemberCommands
    ) -> "DelayLeader":
        return DelayLeader(context, self._following, leader, commands, self._config, self._access)

    def follower_service(self, context: MemberContext, progress: FollowProgress) -> DelayFollower:
        return DelayFollower(context, self._following, self._config, progress)


class DelayLeader:
    """A delay server that leads: `replication.member.server_kind.LeaderService`."""

    def __init__(
        self,
        context: MemberContext,
        following: FollowingStore,
        leader: Leader,
        commands: MemberCommands,
        config: DelayConfig,
        access: ClusterAccess,
    ) -> None:
        self._context = context
        self._commands = commands
        self._config = config
        self._following = following
        self._leader = leader
        self._access = access
        self._parts: DelayParts | None = None

    @property
    def parts(self) -> DelayParts:
        assert self._parts is not None, "start comes first"
        return self._parts

    @property
    def router(self) -> DelayRouter:
        return self.parts.router

    async def start(self) -> None:
        self._note_needed()
        loop = asyncio.get_running_loop()
        leading = await loop.run_in_executor(None, self._following.lead)
        self._parts = DelayParts(
            self._context, leading, self._leader, self._commands, self._config, self._access
        )

    def _note_needed(self) -> None:
        self._following.store.checkpoints.keep_from(self._leader.needed(KEEP))

    async def _run_needed(self) -> None:
        """Tell the store what other members still need of the logs."""
        while True:
            self._note_needed()
            await asyncio.sleep(NEEDED_S)

    def loops(self) -> Loops:
        return {"needed": self._run_needed, **self.parts.loops()}

    def lost(self, peer: Peer) -> None:
        if self._parts is not None:
            self._parts.lender.lost(peer)

    def topic_deleted(self, topic: Topic) -> None:
        """No part of a delay server acts on it."""

    def topic_changed(self, topic: Topic) -> None:
        """No part of a delay server acts on it."""

    async def scrape(self, out: Samples) -> None:
        await self.parts.status.scrape(out)

    async def stop(self, listener: Listener) -> None:
        await self.parts.stop(listener)

    async def close(self) -> None:
        if self._parts is not None:
            await self._parts.close()
