"""Group commit: everything that waits is written by one call and made safe by one sync.

One round at a time. A round takes what has gathered for each log (`CommitTarget`), stages it on the
event loop (memory only), hands it to the writer thread (`RoundWriter`), and on its way back tells
everybody who asked. While a round is on the disk the next one gathers. A log that has nothing to
write takes no part in a round. What nobody waits for rides along with the next round, and is synced
after `SYNC_S`. A broker has one group commit over two logs; a delay server has one for each log.

What is written counts once `CommitGate` says so: at once for a server that is alone, with replicas
when every required one has it. The bytes of a round go to them while our own disk works. A round
that is written and does not count yet is *open*. Logs that are in turn (messages) wait for the open
round, so that sequences have no gaps; others (records, decisions) go on meanwhile.

After a failed write, and at the start, bytes are offered only when they are on our own disk
(*careful*). What was offered and could not be written ends the leadership (*undone*): replicas may
have it, and other bytes in its place would be of the same epoch, so that nobody could tell them
apart. From then on nothing is written, and who asked hears that it may be stored. Never blocks the
loop; never retries a failed write or sync.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ternmq.core.errors import DiskFailed, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.core.worker import Job
from ternmq.replication.commit_gate import CommitGate
from ternmq.replication.round_writer import IDLE_S, RoundWriter
from ternmq.storage.log.write_plan import WritePlan

log = get_logger()

SYNC_S = 1.0
"""What nobody waits for is on disk, and counts, after this."""

Item = TypeVar("Item")
Load = TypeVar("Load")
Staged = TypeVar("Staged")


class Need(IntEnum):
    """What a log wants of the next round."""

    NOTHING = 0
    RIDE = 1
    """It has something to write, which is no reason to begin a round."""
    NOW = 2


_NOTHING, _RIDE, _NOW = Need  # Looking a member up costs more than the rest of a decision.


class Offered(NamedTuple):
    """Bytes that may be passed on, and whether a request waits until they are on disk."""

    plan: WritePlan
    sync: bool


class Written(NamedTuple):
    """What a write put into the log."""

    end: int
    waits: bool
    """Whoever asked for it waits until it counts."""


class Offer(Protocol):
    """Passes bytes on, from the writer thread."""

    def __call__(self, offered: Offered) -> None: ...


class CommitTarget(Protocol[Load, Staged]):
    """A log that rounds are written to, and who waits for them."""

    number: int
    in_turn: bool
    """A round waits until the one before counts; and while the gate is paused."""
    after_bug: bool
    """What gathers is written also after a bug in writing."""
    offers_alone: bool
    """Bytes are passed on also while nobody has to have them; else whoever copies them without
    being needed reads them from the disk."""

    @property
    def need(self) -> Need:
        """Of what has gathered."""

    def heeds(self, refusal: TernError) -> bool:
        """Does what the gate refuses concern this log?"""

    def take(self) -> Load:
        """All that has gathered."""

    def stage(self, load: Load) -> Staged:
        """On the loop, in memory."""

    def offered(self, staged: Staged) -> Offered | None:
        """What is going to be written; None: only `write` finds out, and offers it."""

    def write(self, staged: Staged, offer: Offer) -> Written:
        """On the thread; an offer comes before anything is on the disk."""

    def sync(self) -> None:
        """On the thread."""

    def durable(self) -> int:
        """Everything below is as safe here as it has to be."""

    def written(self, load: Load, staged: Staged) -> None:
        """On the loop: it is in the log."""

    def abandon(self, staged: Staged) -> None:
        """On the loop: it could not be written."""

    def advance(self, mark: int) -> None:
        """On the loop: everything below counts."""

    def count(self, staged: Staged) -> None:
        """On the loop: it counts from now on."""

    def finish(self, load: Load, staged: Staged | None, error: TernError | None) -> None:
        """On the loop: the load counts, or why it does not. Tells whoever waits."""


class ItemTarget(CommitTarget[list[Item], Any], Protocol[Item]):
    """A target whose load is a list."""

    items: list[Item]


class ListTarget(Generic[Item]):
    """The gathering half of such a target."""

    after_bug = False

    def __init__(self) -> None:
        self.items: list[Item] = []

    @property
    def need(self) -> Need:
        return _NOW if self.items else _NOTHING

    def take(self) -> list[Item]:
        items, self.items = self.items, []
        return items


# -- what is decided, of nothing but facts


def round_is_due(needs: Sequence[Need], *, closing: bool) -> bool:
    """At the end nothing rides any more."""
    return max(needs) >= (_RIDE if closing else _NOW)


def careful_after(careful: bool, *, failed: bool, proved: bool) -> bool:
    """A round proves the disk when the first of the logs is in it: messages are refused while
    records may still use what space is reserved."""
    return failed or (careful and not proved)


def is_undone(error: TernError, *, offered: bool) -> bool:
    """Others may have what is not here; or they have a better disk."""
    return offered or isinstance(error, DiskFailed)


class _Leg:
    """One log, and its rounds that do not count yet."""

    def __init__(self, target: CommitTarget[Any, Any]) -> None:
        self.target = target
        self.open: deque[_Part] = deque()
        self.end = 0
        self.late = False
        """Something is written that is not synced."""
        self.taken = self.answered = 0


@dataclass(slots=True)
class _Part:
    """What one log has in a round."""

    leg: _Leg
    load: Any
    staged: Any
    done: Written | None = None
    error: TernError | None = None


@dataclass(slots=True)
class _CommitRound:
    """One turn of the writer thread; `replication.round_writer.WriterRound`."""

    commit: "GroupCommit"
    writer: RoundWriter
    careful: bool
    parts: list[_Part] = field(default_factory=list)
    kept: list[tuple[_Leg, Offered]] = field(default_factory=list)
    """To be offered once it is written."""
    offered: bool = False

    def write(self) -> None:
        for part in self.parts:
            part.error = self.writer.attempt(partial(self._write, part))

    def _write(self, part: _Part) -> None:
        part.done = part.leg.target.write(part.staged, partial(self._offer, part.leg))

    def _offer(self, leg: _Leg, offered: Offered) -> None:
        if not self.commit.may_offer(leg):
            return
        if self.careful:
            self.kept.append((leg, offered))
        else:
            self.offered = True
            self.commit.offer_from_thread(leg, offered)

    def finish(self) -> None:
        self.commit.finish(self)


class GroupCommit:
    """The one way to the disk for its logs."""

    def __init__(
        self, owner: str, thread: str, targets: Sequence[CommitTarget[Any, Any]], gate: CommitGate
    ) -> None:
        """`owner` is what errors call this server. The first of `targets` proves the disk."""
        self._owner = owner
        self._gate = gate
        self._legs = [_Leg(target) for target in targets]
        self._loop = asyncio.get_running_loop()
        self._careful = True
        self._closed = False
        self._undone: TernError | None = None
        self._writer = RoundWriter(thread, self)
        gate.watch(self._moved)

    @property
    def broken(self) -> TernError | None:
        """Why nothing can be written until a restart: a bug in writing."""
        return self._writer.broken

    @property
    def closed(self) -> bool:
        return self._closed

    def refusal(self, target: CommitTarget[Any, Any]) -> TernError | None:
        """Why nothing new is taken for this log."""
        if self._writer.broken is not None:
            return self._writer.broken
        if self._closed:
            return Unavailable(f"{self._owner} is stopping")
        return self._gate_refusal(target)

    def _gate_refusal(self, target: CommitTarget[Any, Any]) -> TernError | None:
        refusal = self._gate.refusal
        return refusal if refusal is not None and target.heeds(refusal) else None

    def kick(self) -> None:
        """Something has gathered: begin a round at the end of this turn of the loop."""
        self._writer.kick()

    def put(self, target: ItemTarget[Item], item: Item) -> None:
        """Write it with the next round; `finish` says how it went, never within this call."""
        refusal = self.refusal(target)
        if refusal is not None:
            self._loop.call_soon(target.finish, [item], None, refusal)
            return
        target.items.append(item)
        self._writer.kick()

    def alone(self, job: Job) -> asyncio.Future[None]:
        """Run a blocking job on the writer thread while nothing is staged (a checkpoint)."""
        return self._writer.alone(job, self._ran_alone)

    async def flush(self) -> None:
        """Until whatever has come so far was told."""
        upto = [(leg, leg.taken + bool(leg.target.need)) for leg in self._legs]
        while any(leg.answered < count for leg, count in upto):  # noqa: ASYNC110 - a few ms, at the end
            await asyncio.sleep(IDLE_S)

    async def close(self) -> None:
        """Write what waits, then stop the thread. A round of a log in turn that does not count by
        then stays unanswered: nobody may be told that it is not stored, since it may count
        later."""
        self._closed = True
        await self._writer.drain()
        for leg in self._legs:
            for part in () if leg.target.in_turn else leg.open:
                self._tell(part, Unavailable(f"{self._owner} stopped before this was safe"))
            self._refuse(leg, Unavailable(f"{self._owner} is stopping"))
        await self._writer.close()

    # -- as the writer's source

    @property
    def has_round(self) -> bool:
        return round_is_due(self._needs(), closing=True)

    def next_round(self) -> _CommitRound | None:
        needs = self._needs()
        if not round_is_due(needs, closing=self._closed):
            return None
        now = _CommitRound(self, self._writer, self._careful)
        for leg, need in zip(self._legs, needs, strict=True):
            if need:
                self._stage(leg, now)
        if not now.parts:
            if round_is_due(self._needs(), closing=self._closed):
                self._writer.kick()  # Who was told that nothing is written asked for more.
            return None
        if not now.careful:
            self._offer_kept(now)
        return now

    def _needs(self) -> list[Need]:
        return [*map(self._need, self._legs)]

    def _need(self, leg: _Leg) -> Need:
        """What may be written of it now."""
        target, gate = leg.target, self._gate
        need = target.need
        if need is _NOTHING or (target.in_turn and (leg.open or gate.paused)):
            return _NOTHING
        refusal = gate.refusal
        return need if refusal is None or not target.heeds(refusal) else _NOTHING

    def _stage(self, leg: _Leg, now: _CommitRound) -> None:
        load = leg.target.take()
        leg.taken += 1
        try:
            stopped = self._undone or (None if leg.target.after_bug else self._writer.broken)
            if stopped is not None:
                raise stopped
            staged = leg.target.stage(load)
        except TernError as error:
            self._tell(_Part(leg, load, None), error)
            return
        except Exception:
            log.exception("staging failed by a bug", log_number=leg.target.number)
            bug = TernError(f"{self._owner} failed while staging; its log says why")
            self._tell(_Part(leg, load, None), bug)
            return
        now.parts.append(_Part(leg, load, staged))
        offered = leg.target.offered(staged)
        if offered is not None and self.may_offer(leg):
            now.kept.append((leg, offered))

    def _offer_kept(self, now: _CommitRound) -> None:
        for leg, offered in now.kept:
            self._pass_on(leg, offered)
            now.offered = True
        now.kept = []

    def _pass_on(self, leg: _Leg, offered: Offered) -> None:
        for part in offered.plan.parts:
            if part.buffers:
                number, sync = leg.target.number, offered.sync
                self._gate.offer(number, part.start, part.buffers, sync=sync)

    # -- on the writer thread

    def may_offer(self, leg: _Leg) -> bool:
        """On both threads: a member has to have it, or the log is passed on in any case."""
        return leg.target.offers_alone or not self._gate.alone

    def offer_from_thread(self, leg: _Leg, offered: Offered) -> None:
        self._loop.call_soon_threadsafe(self._pass_on, leg, offered)

    # -- back on the loop

    def finish(self, now: _CommitRound) -> None:
        """A round was written, or parts of it were not."""
        failed, proved = None, False
        for part in now.parts:
            failed = failed or part.error
            proved = proved or part.leg is self._legs[0]
        if failed is not None:
            self._failed(failed, offered=now.offered)
        elif now.careful:
            self._offer_kept(now)
        self._careful = careful_after(self._careful, failed=failed is not None, proved=proved)
        for part in now.parts:
            if part.error is None and part.done is not None:
                self._wrote(part, part.done)
            else:
                part.leg.target.abandon(part.staged)
                self._tell(part, (now.offered and self._undone) or part.error)

    def _failed(self, error: TernError, *, offered: bool) -> None:
        self._careful = True
        if is_undone(error, offered=offered) and self._gate.undone(error):
            # The next master may have it, so this is no refusal.
            self._undone = Unavailable(f"not stored here, perhaps by a replica: {error.message}")

    def _wrote(self, part: _Part, done: Written) -> None:
        leg = part.leg
        leg.end = done.end
        self._report(leg)
        leg.target.written(part.load, part.staged)
        if done.waits:
            leg.open.append(part)
        else:
            self._tell(part, None)
        if leg.late and not self._closed:
            self._writer.sync_later(SYNC_S, self._sync, self._synced)
        self._settle(leg)

    def _report(self, leg: _Leg) -> None:
        """What is not synced may be lost here, so nobody else may hold it for safe."""
        durable = min(leg.end, leg.target.durable())
        leg.late = durable < leg.end
        self._gate.wrote(leg.target.number, leg.end, durable)

    def _settle(self, leg: _Leg) -> None:
        """Let count what does by now, and tell those who wait for it."""
        mark = self._gate.mark(leg.target.number)
        leg.target.advance(mark)
        while leg.open and leg.open[0].done is not None and leg.open[0].done.end <= mark:
            part = leg.open.popleft()
            self._tell(part, self._count(part))

    def _count(self, part: _Part) -> TernError | None:
        """A bug here is no refusal: it is stored, and seen after a restart."""
        try:
            part.leg.target.count(part.staged)
        except Exception as bug:
            self._writer.fail_by(bug)
            return Unavailable("stored, and not visible before a restart; the log says why")
        return None

    def _moved(self) -> None:
        """More counts than before, or something is refused from now on."""
        for leg in self._legs:
            self._settle(leg)
        for leg in self._legs:
            refusal = self._gate_refusal(leg.target)
            if refusal is not None:
                self._refuse(leg, refusal)
        if round_is_due(self._needs(), closing=False):
            self._writer.kick()

    def _refuse(self, leg: _Leg, error: TernError) -> None:
        """What has gathered is not written."""
        if leg.target.need:
            leg.taken += 1
            self._tell(_Part(leg, leg.target.take(), None), error)

    def _sync(self) -> None:
        for leg in self._legs:
            if leg.late:
                leg.target.sync()

    def _synced(self, error: TernError | None) -> None:
        if error is not None:
            log.error("not synced", reason=error.message)
            self._failed(error, offered=False)
        self._ran_alone(error)

    def _ran_alone(self, error: TernError | None) -> None:
        """A job may have synced what was written."""
        for leg in self._legs:
            if error is None and leg.late:
                self._report(leg)
                self._settle(leg)

    def _tell(self, part: _Part, error: TernError | None) -> None:
        """Whoever is told must not be able to stop the rounds: a bug there costs only itself."""
        part.leg.answered += 1
        try:
            part.leg.target.finish(part.load, part.staged, error)
        except Exception:
            log.exception("telling about a round failed by a bug")
