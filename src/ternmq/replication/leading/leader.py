"""A master towards its replicas: who follows, what they have, what counts, who is in the set.

It is the `CommitGate` of the broker's committer. `offer` passes bytes on to every replica,
REPLICATED says how far each one is, and `mark` is what every required member has (`in_sync_set`
decides who is). A loop looks a few times a second who stands still and sends the changes that are
due to the registry; a change is required before it is sent.

The leadership ends (`ended`) when the registry says that a later epoch has begun (a replica that
says so makes it ask), or when bytes that were passed on could not be written here: those who have
them must not keep them, and only a new epoch says so. After that nothing counts any more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from ternmq.core.errors import (
    Conflict,
    DiskFailed,
    NotInSync,
    NotMaster,
    ProtocolError,
    ReadOnly,
    TernError,
)
from ternmq.core.lifecycle import background
from ternmq.core.log import get_logger
from ternmq.replication.leading.in_sync_set import InSync, KnownMember, Proposal, Rules
from ternmq.replication.leading.replica_stream import LogSource, ReplicaStream
from ternmq.rpc.buffers import Buffer
from ternmq.rpc.peer import Peer
from ternmq.storage.log.leader_epochs import common_end
from ternmq.wire.frame import Frame
from ternmq.wire.messages.replication import (
    MESSAGES,
    REPLICATED,
    Follow,
    Followed,
    LogHeld,
    LogPlan,
)
from ternmq.wire.messages.standings import Standing, standing_of

LOOK_S = 0.1
AGAIN_S = 0.5
REACHED_S = 0.002

log = get_logger()

ChangeInSync = Callable[[Proposal], Awaitable[Standing]]
LookAtRegistry = Callable[[], Awaitable[Standing | None]]
"""How the broker group stands, from the registry and not from memory."""


class Led(LogSource, Protocol):
    """A log that is led here."""

    @property
    def end(self) -> int:
        """Everything below is written."""


class LedHistory(Protocol):
    """What a store says about its past."""

    def starts(self, log: int) -> list[tuple[int, int]]:
        """Epochs and where they began."""

    def base(self) -> bytes:
        """What an empty replica begins with."""


class Leader:
    """One leadership: one epoch."""

    def __init__(
        self,
        me: str,
        standing: Standing,
        *,
        logs: Mapping[int, Led],
        history: LedHistory,
        change: ChangeInSync,
        look: LookAtRegistry,
        rules: Rules,
    ) -> None:
        """Without `rules.wait` messages count when they are on this disk. Records wait in any case:
        what was decided about consuming is never taken back."""
        self._loop = asyncio.get_running_loop()
        self._me = me
        self._group = standing.broker_group
        self.epoch = standing.epoch
        self._logs = dict(logs)
        self._history = history
        self._change = change
        self._look = look
        self._in_sync = InSync(me, known_of(standing), rules, now=self._loop.time())
        self._streams: dict[str, ReplicaStream] = {}
        self._streams_by_peer: dict[Peer, ReplicaStream] = {}
        self._streamed = False
        """A member was passed bytes of this epoch, whether still here or not."""
        first = {number: led.start_offset for number, led in logs.items()}
        self._needs = {each.id: dict(first) for each in standing.members if each.id != me}
        """From where on each member needs the logs, as far as is known."""
        self._written = {number: led.end for number, led in logs.items()}
        self._durable = dict(self._written)
        self._marks = dict.fromkeys(logs, 0)
        self._watchers: list[Callable[[], None]] = []
        self._look_again = asyncio.Event()
        self._enough: int | None = None
        """While a new master begins: so many members are enough to go on."""
        self.refusal: TernError | None = None
        self.paused = False
        self._handing_over = False
        self._patient_until = self._loop.time() + rules.timeout
        """A new master waits for replicas before it refuses messages for the lack of them."""
        self.disk_failed = False
        """Another member should lead."""
        self.gives_way_to = ""
        """The member that should: it has all that counts here and more that was acknowledged."""
        self.lacks = ""
        self.ended: asyncio.Future[str] = self._loop.create_future()
        """Why this leadership is over."""
        self._update()

    # -- as the commit gate

    def offer(self, log: int, offset: int, buffers: list[Buffer], *, sync: bool) -> None:
        for replica in self._streams.values():
            replica.streams[log].offer(offset, buffers, sync=sync)

    def wrote(self, log: int, end: int, durable: int) -> None:
        """The committer looks at the mark itself, so it is not told."""
        self._written[log] = end
        self._durable[log] = durable
        self._update_mark(log, tell=False)
        for replica in self._streams.values():
            replica.streams[log].pump()

    def mark(self, log: int) -> int:
        return self._marks[log]

    async def over(self) -> str:
        """Wait for the end of this leadership; returns why."""
        return await asyncio.shield(self.ended)

    def undone(self, error: TernError) -> bool:
        others = bool(self._streamed or self._in_sync.required)
        if others:
            self.disk_failed = isinstance(error, DiskFailed)
            self._end(f"what replicas may have could not be written here: {error.message}")
        return others

    def watch(self, moved: Callable[[], None]) -> None:
        self._watchers.append(moved)

    # What replica streams ask (`StreamMarks`).

    def written(self, log: int) -> int:
        return self._written[log]

    # -- replicas

    async def follow(self, peer: Peer, request: Follow) -> Followed:
        """The FOLLOW command."""
        if request.broker_group != self._group:
            raise NotMaster(f"this is broker group {self._group!r}, not {request.broker_group!r}")
        if request.epoch > self.epoch:
            await self._ask_registry(request)
        if request.epoch != self.epoch or self.ended.done():
            raise NotMaster(f"this server leads epoch {self.epoch}, not {request.epoch}")
        plans = [self._plan(held) for held in request.logs]
        if {plan.log for plan in plans} != self._logs.keys():
            raise ProtocolError("FOLLOW has to name every log once")
        self._compare(request, plans)
        base = b""
        if any(plan.cut_to < plan.start for plan in plans):
            base = self._history.base()  # Here, because nothing may become safe meanwhile.
        self._begin_stream(peer, request.member)
        log.info("a replica follows", member=request.member, epoch=self.epoch)
        return Followed(epoch=self.epoch, logs=plans, base=base)

    async def _ask_registry(self, doubting: Follow) -> None:
        """A member knows a later epoch, or says so: the registry knows better."""
        try:
            standing = await self._look()
        except TernError as error:
            log.warning(
                "a member knows a later epoch, and the registry cannot be asked; leading on",
                member=doubting.member,
                epoch=doubting.epoch,
                reason=error.message,
            )
            return
        if standing is not None:
            self.learn(standing)

    def _plan(self, held: LogHeld) -> LogPlan:
        led = self._logs.get(held.log)
        if led is None:
            raise ProtocolError(f"there is no log {held.log}")
        starts = self._history.starts(held.log)
        cut_to = common_end(starts, led.end, held.epochs, held.end)
        if held.start == held.end:  # Nothing in it, so nothing that differs.
            cut_to = held.end
        return LogPlan(log=held.log, cut_to=cut_to, start=led.start_offset, epochs=starts)

    def _compare(self, request: Follow, plans: list[LogPlan]) -> None:
        """A member has what was acknowledged and is not here: this server is damaged. It makes room
        if nothing counted here that the other lacks; else a person has to choose."""
        known, member = self._in_sync.known, request.member
        if not known.waits or member not in known.members:
            return
        places = {plan.log: plan.cut_to for plan in plans}
        if all(held.safe <= places[held.log] for held in request.logs):
            self.lacks = ""
            return
        counts = {log: max(self._began(log), self._marks[log]) for log in places}
        if all(counts[log] <= place for log, place in places.items()):
            self.gives_way_to = member
            self._end(f"member {member} has acknowledged messages that are not here")
            raise NotMaster(f"{member} has more than this server, which makes room for it")
        self.lacks = (
            f"damaged: member {member} has acknowledged messages that are not here, and this "
            "server has others; look at both, then 'tern broker promote' the one to go on with"
        )
        log.error("acknowledged messages are missing here", member=member, parted_at=places)

    def _began(self, log: int) -> int:
        """Where this leadership began in a log."""
        return next(
            (start for epoch, start in self._history.starts(log) if epoch == self.epoch),
            self._written[log],
        )

    def begin(self) -> None:
        """A new master: it goes on with whoever is there, itself alone if it must."""
        self._enough = 1

    def has_begun(self) -> None:
        """All that its disk had counts: from here on as many as are needed must have a batch."""
        self._enough = None

    def give_up_on(self, member: str) -> None:
        """A member led before: take it out of the set at once, unless it follows."""
        self._in_sync.give_up_on(member)
        self._look_again.set()

    def _begin_stream(self, peer: Peer, member: str) -> None:
        before = self._streams.pop(member, None)
        if before is not None:
            before.end()
            self._streams_by_peer.pop(before.peer, None)
            before.peer.close()
        self._streamed = True
        replica = self._streams[member] = ReplicaStream(peer, member, self.epoch, self._logs, self)
        self._streams_by_peer[peer] = replica
        self._in_sync.came(member, self._loop.time())
        self._update()

    def replicated(self, peer: Peer, frame: Frame) -> None:
        """The REPLICATED command: a replica has this much."""
        if len(frame.payload) != REPLICATED.size:
            raise ProtocolError("REPLICATED of a wrong size")
        epoch, end, number, _ = REPLICATED.unpack(frame.payload)
        replica = self._streams_by_peer.get(peer)
        if replica is None or epoch != self.epoch or number not in self._logs or self.ended.done():
            raise ProtocolError("REPLICATED without FOLLOW at this epoch")
        stream = replica.streams[number]
        self._in_sync.holds(replica.member, number, end, self._loop.time())
        self._needs.setdefault(replica.member, {})[number] = end
        if not stream.started:
            stream.start(end)
        else:
            if end > stream.sent:
                raise ProtocolError(f"a replica says to have {end}, it was sent {stream.sent}")
            stream.answered(end)
        self._update_mark(number)
        if replica.member not in self._in_sync.known.in_sync:
            self._look_again.set()

    def lost(self, peer: Peer) -> None:
        """A connection is gone; it may have been a replica's."""
        replica = self._streams_by_peer.pop(peer, None)
        if replica is None or self._streams.get(replica.member) is not replica:
            return
        replica.end()
        del self._streams[replica.member]
        self._in_sync.gone(replica.member)
        log.warning("a replica is gone", member=replica.member, epoch=self.epoch)

    def lag(self, member: str) -> int | None:
        """Bytes that a replica lacks; None if it does not follow."""
        copy = self._in_sync.copies.get(member)
        if copy is None or not copy.connected:
            return None
        return sum(end - copy.ends.get(number, 0) for number, end in self._written.items())

    def expect(self, member: str, starts: dict[int, int]) -> None:
        """A member is about to follow, from there on."""
        self._needs[member] = starts

    def needed(self, keep: int) -> dict[int, int]:
        """From where on other members need each log; for one that is away not more than `keep`
        bytes are kept. Empty: there are none."""
        wanted = {each: self._needs[each] for each in self._needs if each in self._members()}
        return {
            number: max(min(needs.get(number, 0) for needs in wanted.values()), written - keep)
            for number, written in self._written.items()
            if wanted
        }

    def _members(self) -> frozenset[str]:
        return self._in_sync.known.members | self._streams.keys()

    # -- handing over

    def successor(self, wanted: str) -> str:
        """Who can take over now: the member that is named, else the one that is furthest."""
        copies = self._in_sync.copies
        ready = [
            member
            for member in sorted(self._in_sync.known.in_sync - {self._me})
            if member in copies and copies[member].connected
        ]
        if wanted and wanted not in ready:
            raise NotInSync(
                f"{wanted} is not in sync and connected; in sync are: {ready or 'none'}"
            )
        if not ready:
            raise NotInSync("no replica is in sync and connected; start one, then hand over")
        return wanted or max(ready, key=lambda member: sum(copies[member].ends.values()))

    def step_down(self, reason: str) -> bool:
        """Let another one lead, if one could at once."""
        try:
            self.successor("")
        except NotInSync:
            return False
        self._end(reason)
        return True

    def pause(self, paused: bool) -> None:
        """Let messages wait, while another one is about to lead."""
        self._handing_over = paused
        self._update()

    async def reached(self, member: str) -> None:
        """Until a member has every message that is written here. Records need not be waited for:
        it has those that count, and more of the progress would only be repeated."""
        wanted = {MESSAGES: self._written[MESSAGES]}
        while True:
            copy = self._in_sync.copies.get(member)
            if copy is None:
                raise NotInSync(f"{member} left the in-sync set meanwhile; this server leads on")
            if copy.has(wanted):
                return
            await asyncio.sleep(REACHED_S)

    # -- the set

    @property
    def alone(self) -> bool:
        """Nobody else has to have what is written here."""
        return not self._in_sync.required

    @property
    def copied(self) -> bool:
        """What counts is with others too."""
        return bool(self._in_sync.required) and self._in_sync.waits

    def learn(self, standing: Standing) -> None:
        """The registry says so."""
        if standing.broker_group != self._group or self.ended.done() or standing.claims:
            return
        if standing.epoch > self.epoch:
            self._end(f"epoch {standing.epoch} has begun, led by {standing.master}")
            return
        if standing.epoch == self.epoch and self._in_sync.learn(
            known_of(standing), self._loop.time()
        ):
            self._update()
            self._look_again.set()

    async def run(self) -> None:
        """Keep the set right until the leadership ends."""
        async with background(look=self._look_forever, change=self._change_forever):
            await asyncio.shield(self.ended)

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if self._in_sync.copies:
                self._in_sync.look(self._loop.time(), self._written)
                if self._in_sync.late(self._loop.time()):
                    self._look_again.set()
            self._update()

    async def _change_forever(self) -> None:
        while True:
            await self._look_again.wait()
            self._look_again.clear()
            proposal = self._in_sync.propose(self._loop.time(), self._marks, at_least=self._enough)
            if proposal is None:
                continue
            self._update()  # Whoever is added is required from here on.
            try:
                self.learn(await self._change(proposal))
                log.info("in-sync set changed", in_sync=sorted(self._in_sync.known.in_sync))
            except Conflict as refused:
                standing = standing_of(refused)
                if standing is not None:
                    self.learn(standing)
            except TernError as error:
                log.warning("in-sync set not changed", reason=error.message)
            if self._in_sync.proposal is not None:  # Not known what became of it: once more.
                await asyncio.sleep(AGAIN_S)
            self._look_again.set()

    def _update(self) -> None:
        """Whoever is required may be others than before."""
        before, was_paused, now = self.refusal, self.paused, self._loop.time()
        reason = self._in_sync.refusal(now)
        patient = reason is not None and now < self._patient_until
        self.paused = patient or self._handing_over
        if self.ended.done():
            self.refusal = NotMaster("this server no longer leads its broker group")
        elif reason is None or patient:
            self.refusal = None
        elif before is None or before.message != reason:
            self.refusal = ReadOnly(reason)
        if before is None and self.refusal is not None and not self.ended.done():
            log.warning("no messages are taken", reason=self.refusal.message)
        elif before is not None and self.refusal is None:
            log.info("messages are taken again")
        for number in self._logs:
            self._update_mark(number)
        if before is not self.refusal or was_paused is not self.paused:
            self._tell()

    def _update_mark(self, number: int, *, tell: bool = True) -> None:
        mark, in_sync = self._durable[number], self._in_sync
        if in_sync.required and (number != MESSAGES or in_sync.waits):
            mark = in_sync.mark(number, mark)
        if mark > self._marks[number] and not self.ended.done():
            self._marks[number] = mark
            for replica in self._streams.values():
                replica.tell_soon()
            if tell:
                self._tell()

    def _tell(self) -> None:
        for moved in self._watchers:
            moved()

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            log.warning("leadership ended", epoch=self.epoch, reason=reason)
            self.ended.set_result(reason)
            self._update()

    def end(self) -> None:
        """Whoever leads stops leading: nothing counts from here on."""
        if not self.ended.done():
            self.ended.set_result("this server stops leading")
            self._update()
        for replica in list(self._streams.values()):
            replica.end()
            replica.peer.close()


def known_of(standing: Standing) -> KnownMember:
    return KnownMember(
        version=standing.version,
        in_sync=frozenset(standing.in_sync),
        members=frozenset(member.id for member in standing.members),
        waits=standing.waits,
    )
