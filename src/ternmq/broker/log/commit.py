"""The broker's way to the disk: batches for the message log, records for the pull log.

Both logs share one group commit, see `replication.group_commit` for the rounds and for when they
count. This module is what is a broker's own: batches are answered one by one when they are safe;
progress records ride along with the next round, or go alone after `PROGRESS_DELAY_S`; only
decisions wait for a sync of the pull log. What must not go on before progress survives this process
asks for it (`progress_durable`). Never blocks the loop.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from ternmq.core.errors import DiskFull, TernError
from ternmq.core.log import get_logger
from ternmq.core.worker import Job
from ternmq.replication.commit_gate import CommitGate
from ternmq.replication.group_commit import GroupCommit, Need, Offer, Offered, Written
from ternmq.replication.message_target import MessageTarget
from ternmq.replication.round_writer import settle
from ternmq.storage.log.append import Append
from ternmq.storage.pull.pull_log import PullLog, PullRecord, StagedPulls
from ternmq.storage.store import Store
from ternmq.wire.messages.replication import PULLS

log = get_logger()

PROGRESS_DELAY_S = 0.05
_NOTHING, _RIDE, _NOW = Need

OnAppended = Callable[[Append, TernError | None], None]
_Waiting = tuple[Append, OnAppended]
OnPlaced = Callable[[int | None], None]
"""Hears where a record lies, or that it could not be written."""


class Committer:
    """The one way to the disk for a broker."""

    def __init__(
        self,
        store: Store,
        gate: CommitGate,
    ) -> None:
        self._gate = gate
        self._loop = asyncio.get_running_loop()
        self._watchers: list[Callable[[list[Append]], None]] = []
        self._messages: MessageTarget[_Waiting] = MessageTarget(
            store.messages, itemgetter(0), self._stored, offers_alone=True
        )
        self._pulls = _Records(store.pulls, gate)
        self._commit = GroupCommit("the broker", "tern-writer", [self._messages, self._pulls], gate)
        self._log = store.messages
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, on_safe: Callable[[list[Append]], None]) -> None:
        """Call this with the batches of every round that became safe, before anybody is answered;
        on the loop."""
        self._watchers.append(on_safe)

    def append(self, append: Append, on_done: OnAppended) -> None:
        """Store a batch; `on_done` is called on the loop once it is safe, or with the reason."""
        refusal = self._commit.refusal(self._messages)
        if refusal is not None:
            on_done(append, refusal)
            return
        self._messages.items.append((append, on_done))
        self._commit.kick()

    def _stored(self, batches: list[_Waiting], error: TernError | None) -> None:
        if error is None:
            appends = [append for append, _ in batches]
            for on_safe in self._watchers:
                _guarded(on_safe, appends)
        for append, on_done in batches:
            _guarded(on_done, append, error)

    def progress(self, record: PullRecord, placed: OnPlaced | None = None) -> None:
        """Write soon; losing it means that rows are handed out again."""
        gathered = self._pulls.gathered
        if placed is not None:
            gathered.placed.append((len(gathered.records), placed))
        gathered.records.append(record)
        if self._timer is None:
            self._timer = self._loop.call_later(PROGRESS_DELAY_S, self._progress_is_due)

    def _progress_is_due(self) -> None:
        """Whatever rode along meanwhile is written; the rest does not wait any longer."""
        self._timer = None
        if self._pulls.gathered.records:
            self._pulls.gathered.due = True
            self._commit.kick()

    def decide(self, records: list[PullRecord]) -> asyncio.Future[None]:
        """Write and sync; the future is done when the records are as safe as a publish."""
        future: asyncio.Future[None] = self._loop.create_future()
        refusal = self._commit.refusal(self._pulls)
        if refusal is not None:
            settle(future, refusal)
            return future
        self._pulls.gathered.records += records
        self._pulls.gathered.decisions.append(future)
        self._commit.kick()
        return future

    def progress_durable(self) -> asyncio.Future[None]:
        """Completes once a new leader would see all progress recorded so far: it is written here,
        so that a restart finds it; with replicas also there, as a decision is."""
        if not self._gate.alone or self._commit.refusal(self._pulls) is not None:
            return self.decide([])
        future: asyncio.Future[None] = self._loop.create_future()
        self._pulls.make_durable(future)
        self._commit.kick()
        return future

    def alone(self, job: Job) -> asyncio.Future[None]:
        """Run a blocking job on the writer thread while nothing is staged (a checkpoint)."""
        return self._commit.alone(job)

    async def close(self) -> None:
        """Write what waits, then stop the thread. What does not count by then stays unanswered:
        nobody may be told that it is not stored, since it may count later."""
        if self._timer is not None:
            self._timer.cancel()
        await self._commit.close()

    @property
    def failed(self) -> TernError | None:
        """Why nothing can be stored until a restart, if so."""
        return self._commit.broken or self._log.failed


@dataclass(slots=True)
class _RecordLoad:
    """Records that go into one round, and who waits for them."""

    records: list[PullRecord] = field(default_factory=list)
    decisions: list[asyncio.Future[None]] = field(default_factory=list)
    placed: list[tuple[int, OnPlaced]] = field(default_factory=list)
    """By the number of the record in `records`."""
    durable_for: list[asyncio.Future[None]] = field(default_factory=list)
    due: bool = False
    """Progress has waited long enough."""

    def tell_placed(self, offsets: list[int] | None) -> None:
        placed, self.placed = self.placed, []
        for number, tell in placed:
            tell(None if offsets is None else offsets[number])


class _Records:
    """The pull log as a `CommitTarget`.

    Once the pull log has failed progress is in memory only, which a restart turns into repeats;
    decisions are refused. Messages go on.
    """

    number = PULLS
    in_turn = False
    after_bug = True  # Consuming goes on; what is not written comes again after a restart.
    offers_alone = True

    def __init__(self, pulls: PullLog, gate: CommitGate) -> None:
        self._pulls = pulls
        self._gate = gate
        self.gathered = _RecordLoad()
        self._writing: _RecordLoad | None = None

    @property
    def need(self) -> Need:
        gathered = self.gathered
        if gathered.decisions or gathered.durable_for or (gathered.due and gathered.records):
            return _NOW
        return _RIDE if gathered.records else _NOTHING

    def heeds(self, refusal: TernError) -> bool:
        return False  # Consuming goes on where no messages are taken.

    def make_durable(self, future: asyncio.Future[None]) -> None:
        """Done when what has gathered, or else what is being written, is written."""
        load = self.gathered if self.gathered.records else self._writing
        if load is None:
            settle(future, None)
        else:
            load.durable_for.append(future)

    def take(self) -> _RecordLoad:
        self._writing, self.gathered = self.gathered, _RecordLoad()
        return self._writing

    def stage(self, load: _RecordLoad) -> tuple[StagedPulls, bool]:
        return self._pulls.stage(load.records), bool(load.decisions)

    def offered(self, staged: tuple[StagedPulls, bool]) -> Offered:
        return Offered(staged[0].plan, sync=staged[1])

    def write(self, staged: tuple[StagedPulls, bool], offer: Offer) -> Written:
        records, sync = staged
        self._pulls.write(records, sync)
        return Written(records.plan.end, waits=sync)

    def sync(self) -> None:
        self._pulls.sync()

    def durable(self) -> int:
        return self._pulls.synced_offset

    def written(self, load: _RecordLoad, staged: tuple[StagedPulls, bool]) -> None:
        self._pulls.commit(staged[0], safe=False)
        load.tell_placed(staged[0].offsets)
        self._durable(load)

    def abandon(self, staged: tuple[StagedPulls, bool]) -> None:
        self._pulls.abandon(staged[0])

    def advance(self, mark: int) -> None:
        self._pulls.advance(mark)

    def count(self, staged: tuple[StagedPulls, bool]) -> None:
        """`advance` does it."""

    def finish(
        self,
        load: _RecordLoad,
        staged: tuple[StagedPulls, bool] | None,
        error: TernError | None,
    ) -> None:
        if error is not None and staged is not None and not staged[0].written:
            harmless = isinstance(error, DiskFull) and not load.decisions
            (log.warning if harmless else log.error)(
                "pull log not written", reason=error.message, decisions=len(load.decisions)
            )
        load.tell_placed(None)
        self._durable(load)
        for future in load.decisions:
            settle(future, error)

    def _durable(self, load: _RecordLoad) -> None:
        """These records are written, or cannot be: then they are in memory only, which a restart
        turns into repeats. Where a replica has come meanwhile it has to have them too."""
        if load is self._writing:
            self._writing = None
        waiting, load.durable_for = load.durable_for, []
        if self._gate.alone:
            for future in waiting:
                settle(future, None)
        else:
            self.gathered.decisions += waiting


def _guarded(tell: Callable[..., None], *arguments: Any) -> None:
    """Whoever is told must not be able to stop the rounds: a bug there costs only itself."""
    try:
        tell(*arguments)
    except Exception as bug:
        log.error("telling about a round failed by a bug", error=repr(bug))
