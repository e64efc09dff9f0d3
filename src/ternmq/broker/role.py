"""A broker's part in replication: its files, and what it does with them as master and as replica.

Opens and copies a broker's data directory, and puts together what runs in each role: the leader
(`broker/leader.py`) or the follower (`broker/follower.py`). The rest (joining, leading, following,
promotion) is in `replication` and is the same for the delay server. Never decides who leads.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from ternmq.broker.config import BrokerConfig, ColdReads
from ternmq.broker.follower import BrokerFollower
from ternmq.broker.leader import BrokerMember, BrokerParts
from ternmq.core.clock import Clock
from ternmq.core.errors import Corrupt, TernError
from ternmq.core.lifecycle import Pulse
from ternmq.discovery.cluster_access import ClusterAccess
from ternmq.discovery.directory import InUse
from ternmq.metrics.samples import Samples
from ternmq.replication.leading.leader import Leader
from ternmq.replication.member.member_context import MemberContext
from ternmq.replication.member.server_kind import (
    CopiedLog,
    FollowProgress,
    FrameRouter,
    Loops,
    MemberCommands,
)
from ternmq.rpc.peer import Peer
from ternmq.rpc.server import Listener
from ternmq.storage.bootstrap import install_base
from ternmq.storage.config import StorageConfig, StoreOpening
from ternmq.storage.files import checkpoint, unclean_marker
from ternmq.storage.files.disk import Disk, is_removed
from ternmq.storage.files.paths import LOG_SUFFIX, Paths, bases, segment
from ternmq.storage.log.leader_epochs import Starts
from ternmq.storage.log.recovery_report import RecoveryReport
from ternmq.storage.log.segmented_log import log_end
from ternmq.storage.messages.message_log import OnCorrupt
from ternmq.storage.store import Store
from ternmq.wire.messages.hello import ServerRole
from ternmq.wire.messages.replication import MESSAGES, PULLS
from ternmq.wire.messages.standings import BrokerGroupKind
from ternmq.wire.messages.topics import Topic

OPENS_AGAIN = False
"""Whether a store that changes its role is opened again without syncs (0034)."""


class BrokerKind:
    """What makes a member a broker: a `ServerKind` of replication."""

    kind: BrokerGroupKind = "realtime"
    role: ServerRole = "broker"
    title = "broker"

    def __init__(
        self, config: BrokerConfig, home: Path, *, clock: Clock, disk: Disk, access: ClusterAccess
    ) -> None:
        """By `access` it finds other brokers."""
        self._config = config
        self._clock = clock
        self._disk = disk
        self._access = access
        self.home = home
        self._opens_again = False
        """The store was closed in order by this process, to be opened again."""

    def data_epoch(self) -> int:
        return data_epoch(self._disk, Paths(self.home))

    def ends(self) -> list[int]:
        paths = Paths(self.home)
        return [log_end(self._disk, folder) for folder in (paths.message, paths.pull)]

    def acks_from_memory(self) -> bool:
        return unclean_marker.crashed_with_acks_from_memory(self._disk, Paths(self.home))

    def note_acks_from_memory(self, acks_from_memory: bool) -> None:
        unclean_marker.note(self._disk, Paths(self.home), acks_from_memory=acks_from_memory)

    def open(self, epoch: int, *, suffix: bool, on_corrupt: OnCorrupt) -> "BrokerReplicatedStore":
        store = Store.open(
            self._disk,
            self.home,
            clock=self._clock,
            epoch=epoch,
            config=storage_config(self._config),
            # As after a crash: seed 61434 of the simulation loses a message otherwise (0034).
            opening=StoreOpening(suffix=suffix, again=self._opens_again and OPENS_AGAIN),
            on_corrupt=on_corrupt,
        )
        self._opens_again = False
        return BrokerReplicatedStore(store, self._config, self._access, closed=self._closed)

    def _closed(self, opens_again: bool) -> None:
        self._opens_again = opens_again

    def end(self) -> None:
        if self._opens_again:
            unclean_marker.remove(self._disk, Paths(self.home))

    async def reseed(self, context: MemberContext, base: bytes) -> None:
        self._opens_again = False
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, install_base, self._disk, self.home, base)


class BrokerReplicatedStore:
    """An open broker store: a `ReplicatedStore` of replication."""

    def __init__(
        self,
        store: Store,
        config: BrokerConfig,
        access: ClusterAccess,
        *,
        closed: Callable[[bool], None],
    ) -> None:
        """`closed` is told when it is, and whether in order and to be opened again."""
        self._store = store
        self._config = config
        self._access = access
        self._closed = closed
        self._unnamed: frozenset[int] = frozenset()
        self._follower: BrokerFollower | None = None
        self.logs: Mapping[int, CopiedLog] = {MESSAGES: store.messages, PULLS: store.pulls}
        self.tables = store.tables
        self.begin_epoch = store.begin_epoch
        self.base = store.base_state

    @property
    def report(self) -> RecoveryReport:
        return self._store.report

    def close(self, *, again: bool) -> None:
        in_order = self._store.close(again=again and OPENS_AGAIN)
        self._closed(again and in_order and OPENS_AGAIN)

    def look(self) -> TernError | None:
        self._store.look()
        failed = (self._store.messages.failed, self._store.pulls.failed)
        return next((each for each in failed if each is not None and is_removed(each)), None)

    def adopt(
        self, cuts: Mapping[int, int], tables: dict[int, Starts], *, waits: bool = True
    ) -> None:
        if cuts[MESSAGES] < self._store.messages.end and self._follower is not None:
            self._follower.count_lacked(cuts[MESSAGES])
        self._store.truncate(cuts[MESSAGES], cuts[PULLS], waits=waits)
        self._store.adopt_epochs(tables)

    async def reserve(self, context: MemberContext) -> int:
        known = await asyncio.get_running_loop().run_in_executor(None, self._store.known)
        self._unnamed = await context.directory.reserve(
            InUse(
                broker_group=context.broker_group,
                topic_ids=known.topic_ids,
                group_id=known.group_id,
                epoch=known.epoch,
            )
        )
        return known.epoch

    def leader_service(
        self, context: MemberContext, leader: Leader, commands: MemberCommands
    ) -> "BrokerLeader":
        member = BrokerMember(
            id=context.me,
            place=context.place,
            gate=leader,
            listener=context.listener,
            access=self._access,
            drainable=context,
            commands=commands,
            cold_below=lambda: _cold_below(self._config, self._store, leader),
        )
        parts = BrokerParts(
            self._config, self._store, context.directory, context.clock, context.disk, member
        )
        return BrokerLeader(parts, self._unnamed, promoted=context.promoted)

    def follower_service(self, context: MemberContext, progress: FollowProgress) -> BrokerFollower:
        self._follower = BrokerFollower(context, self._store, self._config, progress)
        return self._follower


class BrokerLeader:
    """A broker that leads: a `LeaderService` of replication."""

    def __init__(self, parts: BrokerParts, unnamed: frozenset[int], *, promoted: bool) -> None:
        self._parts = parts
        self._unnamed = unnamed
        self._promoted = promoted

    @property
    def router(self) -> FrameRouter:
        return self._parts.router

    async def start(self) -> None:
        await self._parts.start(self._unnamed, promoted=self._promoted)

    def loops(self) -> Loops:
        parts, pulse = self._parts, Pulse()
        return {
            "pulse": pulse.run,
            "timers": partial(parts.timers.run, pulse),
            "checkpoints": parts.timers.run_checkpoints,
            "alarms": parts.stats.run_alarms,
            "index": parts.timers.run_index,
            "flush": partial(parts.timers.run_flush, pulse),
            "retention": parts.retention.run,
            "check-back": partial(parts.check_back.run, pulse),
            "slots": partial(parts.slots.run, pulse),
            "stuck-requests": partial(parts.stuck_requests.run, pulse),
        }

    def lost(self, peer: Peer) -> None:
        self._parts.lost(peer)

    def topic_deleted(self, topic: Topic) -> None:
        self._parts.topic_deleted(topic)

    def topic_changed(self, topic: Topic) -> None:
        self._parts.admin.topic_changed(topic)

    async def scrape(self, out: Samples) -> None:
        await self._parts.status.scrape(out)

    async def stop(self, listener: Listener) -> None:
        await self._parts.stop(listener)

    async def close(self) -> None:
        await self._parts.close()


def storage_config(config: BrokerConfig) -> StorageConfig:
    """How the store of such a broker keeps its data."""
    return StorageConfig(
        flush=config.flush.value,
        flush_interval_ms=config.flush_interval_ms,
        flush_bytes=config.flush_bytes,
        segment_size=config.segment_size,
        min_free=config.disk_free_min,
        full_percent=config.disk_full_percent,
        pull_keep=config.delivery_records_keep,
    )


def _cold_below(config: BrokerConfig, store: Store, leader: Leader) -> int | None:
    """Up to where replicas give the bytes; None: they do not, or there is none in step."""
    if config.cold_reads is ColdReads.MASTER or leader.alone:
        return None
    return store.messages.safe_offset - config.cold_after


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
