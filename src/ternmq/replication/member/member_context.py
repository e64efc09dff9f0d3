"""What the roles of one server share: settings, member id, role switch, the cluster."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from ternmq.core.clock import Clock
from ternmq.core.errors import Corrupt, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.discovery.directory import ClusterDirectory
from ternmq.metrics.samples import Samples, Source
from ternmq.replication.config import ReplicaAck, ReplicationConfig
from ternmq.replication.member.group_record import BrokerGroupRecord, has_company
from ternmq.replication.member.member_events import NOBODY, MemberEvents
from ternmq.replication.member.member_location import MemberLocation
from ternmq.replication.member.role_switch import Role, RoleSwitch
from ternmq.rpc.node_proof import Greeting
from ternmq.rpc.server import Listener
from ternmq.storage.files.disk import Disk
from ternmq.storage.files.member import MemberFile
from ternmq.storage.log.recovery_report import RecoveryReport
from ternmq.wire.messages.standings import BrokerGroupKind, Standing
from ternmq.wire.messages.topics import Topic

LOOK_S = 1.0
NOTE_AGAIN_S = 1.0

log = get_logger()


class HeldLog(Protocol):
    """A log of this member."""

    @property
    def end(self) -> int: ...

    @property
    def synced_offset(self) -> int: ...


NO_LOGS: Mapping[int, HeldLog] = MappingProxyType({})


@dataclass(slots=True, kw_only=True)
class MemberContext:
    """Where a member of a broker group lives."""

    kind: BrokerGroupKind
    config: ReplicationConfig
    place: MemberLocation
    directory: ClusterDirectory
    clock: Clock
    disk: Disk
    member: MemberFile
    record: BrokerGroupRecord
    hello: Greeting
    """How it says hello to other servers."""
    role_switch: RoleSwitch
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
    """Bytes that were safe are missing or do not match their checksum, as a read found."""
    former: str = ""
    """Who led before the epoch of now, if another member did."""
    held: dict[int, int] = field(default_factory=dict)
    """How far the logs were on disk when the last role ended, by number: they do not get shorter
    while no store is open."""
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _figures: Source | None = None
    _events: MemberEvents = NOBODY
    """The role of now, which is told of them."""
    _noting: set["asyncio.Task[None]"] = field(default_factory=set)

    @property
    def me(self) -> str:
        return self.member.id

    @property
    def broker_group(self) -> str:
        return self.place.broker_group

    @property
    def from_memory(self) -> bool:
        """As a replica it answers for bytes before they are on its disk."""
        return self.kind == "realtime" and self.config.replica_ack is ReplicaAck.MEMORY

    def learn(self, standing: Standing) -> None:
        """News of a broker group, perhaps of this one; never older than what is known. The role
        acts on it when it is on disk, except that another master ends a leadership at once."""
        if (
            standing.broker_group != self.broker_group
            or standing.kind != self.kind
            or standing.claims
        ):
            return
        if standing.version > self.standing.version:
            if standing.epoch > self.standing.epoch:
                self.former = self.standing.master if self.standing.master != self.me else ""
            self.standing = standing
            self.changed.set()
            if standing.epoch > self.member.accepted_epoch:
                self._events.on_standing(standing)
            noting = asyncio.ensure_future(self._note(standing))
            self._noting.add(noting)
            noting.add_done_callback(self._noting.discard)

    async def _note(self, standing: Standing) -> None:
        while self.standing is standing and not self.stop.is_set():
            try:
                await self.record.note(standing)
            except TernError as error:  # A full disk, say: nobody would tell it again.
                log.error("how the group stands is not noted yet", reason=error.message)
                await asyncio.sleep(NOTE_AGAIN_S)
            except Exception:  # Forgotten, this member would never act on it.
                log.exception("noting how the group stands failed by a bug")
                await asyncio.sleep(NOTE_AGAIN_S)
            else:
                self._events.on_standing(standing)
                return

    async def lead(self, member: str = "", *, force: bool = False) -> Standing:
        """Ask that a member (else this one) leads at a new epoch."""
        return await self.directory.lead(
            self.broker_group, member or self.me, kind=self.kind, force=force
        )

    def on_corrupt(self, error: Corrupt) -> TernError:
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
        if not self.damaged and self._events.on_damage(reason):
            log.error("stored messages are damaged here, others have them", reason=reason)
            self.damaged = True
            self.changed.set()

    async def watch_files(self, look: Callable[[], TernError | None]) -> None:
        """Notice that files are removed under an open store; forever."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.lost_files(look)

    async def lost_files(self, look: Callable[[], TernError | None]) -> bool:
        """Files were removed: this member lost what it answered for, and others have it. It leaves
        the set and does not lead."""
        return await self.misses_files(look) and self.unfit

    async def misses_files(self, look: Callable[[], TernError | None]) -> bool:
        """Files were removed, whether or not a member could take over now."""
        gone = await self._loop.run_in_executor(None, look)
        if gone is not None and has_company(self.standing, self.me):
            self._found(gone.message)
        return gone is not None

    def close_role(self, logs: Mapping[int, HeldLog]) -> None:
        """A role is about to close its store."""
        self.held = {number: log.synced_offset for number, log in logs.items()}

    @property
    def unfit(self) -> bool:
        """The data of this member is known to be damaged, and others have everything."""
        return (self.damaged or self.member.damaged) and has_company(self.standing, self.me)

    async def leave_if_damaged(
        self, report: RecoveryReport, logs: Mapping[int, HeldLog] = NO_LOGS
    ) -> bool:
        """A store that lost what was safe must not lead, nor answer for what it has, while others
        have it. `logs` as they were opened. True: it is so, and this member is out of the set, or
        tried to be."""
        whole = report.sound and all(
            log.end >= self.held.get(each, 0) for each, log in logs.items()
        )
        if not has_company(self.standing, self.me):
            self.damaged = False  # Nobody has what it lacks.
            if not whole:
                log.error(
                    "what was acknowledged is damaged here, and nobody else is in sync: this "
                    "member goes on with what it has",
                    member=self.me,
                )
            return False
        if whole and not self.unfit:
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

    async def give_way(self, to: str) -> None:
        """Another member has all that counts here, and more that was acknowledged: it leads. The
        loss is this member's, and the set is that one, for nobody else is known to have it."""
        log.error("acknowledged messages are missing here, another member has them", member=to)
        self.damaged = True
        try:
            await self.record.note_damaged(True)
            self.learn(
                await self.directory.change_in_sync(
                    self.broker_group,
                    kind=self.kind,
                    epoch=self.standing.epoch,
                    in_sync=sorted((self.me, to)),
                    version=self.standing.version,
                    waits=self.standing.waits,
                )
            )
        except TernError as error:  # It leads again, and is asked again.
            log.error("cannot make room for it yet", reason=error.message)
            return
        await self.leave_set()

    async def leave_set(self) -> None:
        """Out of the in-sync set, and no longer master; the last one stays."""
        if self.me not in self.standing.in_sync:
            return
        try:
            self.learn(
                await self.directory.leave_in_sync(
                    self.broker_group, self.me, self.standing.epoch, kind=self.kind
                )
            )
        except TernError as error:
            log.error("still in the in-sync set", reason=error.message)

    def enter(self, role: Role, events: MemberEvents = NOBODY) -> None:
        """This role answers clients, and is told of what happens, until it leaves."""
        self.role_switch.enter(role, self.listener.peers)
        self._events = events

    def leave(self) -> None:
        """No role answers; where the server stops its listener closes the clients."""
        self.role_switch.leave(() if self.stop.is_set() else self.listener.peers)

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
