"""What the roles of one server share: settings, member id, door, the cluster."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ternmq.core.clock import Clock
from ternmq.core.errors import Corrupt, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.discovery.directory import ClusterDirectory
from ternmq.metrics.samples import Samples, Source
from ternmq.replication.config import ReplicaAck, ReplicationConfig
from ternmq.replication.member.group_record import GroupRecord, has_company
from ternmq.replication.member.member_events import NOBODY, MemberEvents
from ternmq.replication.member.member_place import MemberPlace
from ternmq.replication.member.role_switch import Role, RoleSwitch
from ternmq.rpc.node_proof import Greeting
from ternmq.rpc.server import Listener
from ternmq.storage.files.disk import Disk
from ternmq.storage.files.member import MemberFile
from ternmq.storage.log.recovery_report import RecoveryReport
from ternmq.wire.messages.standings import BrokerGroupKind, Standing
from ternmq.wire.messages.topics import Topic

log = get_logger()


@dataclass(slots=True, kw_only=True)
class MemberContext:
    """Where a member of a broker group lives."""

    kind: BrokerGroupKind
    config: ReplicationConfig
    place: MemberPlace
    directory: ClusterDirectory
    clock: Clock
    disk: Disk
    member: MemberFile
    record: GroupRecord
    hello: Greeting
    """How it says hello to other servers."""
    door: RoleSwitch
    listener: Listener
    join: Callable[[], Awaitable[Standing]]
    """Once more, with what this disk says."""
    standing: Standing
    """As it was heard last."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the standing is another; whoever waits clears it."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """The first role has begun."""
    promoted: bool = False
    """It leads in the place of another member."""
    epoch: int = 0
    """That is led here and served; 0: none."""
    watchers: list[Callable[[int], None]] = field(default_factory=list)
    """Told of it."""
    damaged: bool = False
    """Bytes that were safe do not match their checksum, as somebody found who read them."""
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _figures: Source | None = None
    _events: MemberEvents = NOBODY
    """The role of now, which is told of them."""
    _noting: set["asyncio.Task[None]"] = field(default_factory=set)

    @property
    def me(self) -> str:
        return self.member.id

    @property
    def group(self) -> str:
        return self.place.broker_group

    @property
    def from_memory(self) -> bool:
        """As a replica it answers for bytes before they are on its disk."""
        return self.kind == "realtime" and self.config.replica_ack is ReplicaAck.MEMORY

    def learn(self, standing: Standing) -> None:
        """News of a broker group, perhaps of this one; never older than what is known. The role
        acts on it when it is on disk, except that another master ends a leadership at once."""
        if standing.broker_group != self.group or standing.kind != self.kind or standing.claims:
            return
        if standing.version > self.standing.version:
            self.standing = standing
            self.changed.set()
            if standing.epoch > self.member.accepted_epoch:
                self._events.heard(standing)
            noting = asyncio.ensure_future(self._hear(standing))
            self._noting.add(noting)
            noting.add_done_callback(self._noting.discard)

    async def _hear(self, standing: Standing) -> None:
        try:
            await self.record.note(standing)
        except TernError as error:
            log.error("how the group stands is not noted", reason=error.message)
        else:
            self._events.heard(standing)

    async def lead(self, member: str = "", *, force: bool = False) -> Standing:
        """Ask that a member (else this one) leads at a new epoch."""
        return await self.directory.lead(self.group, member or self.me, kind=self.kind, force=force)

    def judge(self, error: Corrupt) -> TernError:
        """What to say of stored bytes that do not match their checksum; any thread. While others
        have them nobody is told that they are lost: this member makes room for those."""
        if not has_company(self.standing, self.me):
            return error
        self._loop.call_soon_threadsafe(self._found, error.message)
        return Unavailable(
            "stored messages are damaged on this server; another member of its broker group has "
            "them and takes over, try again"
        )

    def _found(self, reason: str) -> None:
        if not self.damaged and self._events.hurt(reason):
            log.error("stored messages are damaged here, others have them", reason=reason)
            self.damaged = True
            self.changed.set()

    @property
    def unfit(self) -> bool:
        """Its data is known to be damaged, and others have everything."""
        return (self.damaged or self.member.damaged) and has_company(self.standing, self.me)

    async def leave_if_damaged(self, report: RecoveryReport) -> bool:
        """A store that lost what was safe must not lead, nor answer for what it has, while others
        have it. True: it is so, and this member is out of the set, or tried to be."""
        if not has_company(self.standing, self.me):
            self.damaged = False  # Nobody has what it lacks.
            return False
        if report.sound and not self.unfit:
            return False
        log.error(
            "what was acknowledged is damaged here and others have it; this member leaves the set",
            member=self.me,
        )
        self.damaged = True
        try:
            await self.record.note_damaged(True)
        except TernError as error:
            log.error("that this member is damaged is not noted", reason=error.message)
        await self.leave_set()
        return True

    async def leave_set(self) -> None:
        """Out of the in-sync set, and no longer master; the last one stays."""
        if self.me not in self.standing.in_sync:
            return
        try:
            self.learn(
                await self.directory.leave_in_sync(
                    self.group, self.me, self.standing.epoch, kind=self.kind
                )
            )
        except TernError as error:
            log.error("still in the in-sync set", reason=error.message)

    def enter(self, role: Role, events: MemberEvents = NOBODY) -> None:
        """This role answers clients, and is told of what happens, until it leaves."""
        self.door.enter(role, self.listener.peers)
        self._events = events

    def leave(self) -> None:
        """No role answers; where the server stops its listener closes the clients."""
        self.door.leave(() if self.stop.is_set() else self.listener.peers)

    def tell_nobody(self) -> None:
        """No role acts on what happens, until the next one enters."""
        self._events = NOBODY

    def topic_deleted(self, topic: Topic) -> None:
        self._events.topic_deleted(topic)

    def topic_changed(self, topic: Topic) -> None:
        self._events.topic_changed(topic)

    def begun(self, figures: Source, *, epoch: int = 0) -> None:
        """A role serves from here on; `epoch` of a master."""
        self._figures = figures
        self.say(epoch)
        self.ready.set()

    def ended(self) -> None:
        """No role has figures until the next begins."""
        self._figures = None
        self.say(0)

    def say(self, epoch: int) -> None:
        """Tell meta which epoch is led here; 0: none."""
        self.epoch = epoch
        for tell in self.watchers:
            tell(epoch)

    async def scrape(self, out: Samples) -> None:
        """The figures of the role of now."""
        if self._figures is not None:
            await self._figures(out)
