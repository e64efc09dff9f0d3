"""Group commit: everything that waits is written by one call and made safe by one sync.

One round at a time. A round takes all batches and pull-log records that wait, stages them on the
event loop (memory only), hands them to the writer thread (the only thread that writes), and on its
way back tells everybody who asked. While a round is on the disk the next one gathers, so the disk
sets the pace and a slow one makes larger rounds, not longer queues: producers are held back by the
bytes they have unanswered (`rpc.Peer.hold`).

Progress records ride along with the next round, or go alone after `PROGRESS_DELAY_S`; only
decisions wait for a sync of the pull log. Whoever must not go on before progress outlives this
process asks for it (`outlives`). Never blocks the loop; never retries a failed sync.

What is written counts once `CommitGate` says so: at once for a broker that is alone, with replicas
when every required one has it. The bytes of a round go to them while our own disk works. A round of
messages that is written and does not count yet stays *open*: the next one waits for it, so that
sequences have no gaps; records, checkpoints and decisions go on meanwhile. After a failed write,
and at the start, bytes are offered only when they are on our own disk (*careful*): what was offered
and could not be written ends the leadership (`CommitGate.undone`).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ternmq.core.errors import DiskFailed, DiskFull, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.core.worker import Job, start_worker
from ternmq.replication.commit_gate import Alone, CommitGate, pass_on
from ternmq.storage.log.append import StagedBatches
from ternmq.storage.messages.message_log import Append
from ternmq.storage.pull.pull_log import PullRecord, StagedPulls
from ternmq.storage.store import Store
from ternmq.wire.messages.replication import MESSAGES, PULLS

log = get_logger()

PROGRESS_DELAY_S = 0.05
PROGRESS_SYNC_S = 1.0

Told = Callable[[Append, TernError | None], None]
Placed = Callable[[int | None], None]
"""Hears where a record lies, or that it could not be written."""


class _Round(NamedTuple):
    """What is on the disk right now."""

    appends: list[tuple[Append, Told]]
    staged: StagedBatches | None
    records: StagedPulls | None
    decisions: list[asyncio.Future[None]]
    sync_records: bool
    placed: list[tuple[int, Placed]]
    outliving: list[asyncio.Future[None]]


class Written(NamedTuple):
    """How the writer thread fared."""

    messages: TernError | None
    records: TernError | None


class Committer:
    """The one way to the disk for a broker."""

    def __init__(
        self,
        store: Store,
        *,
        on_safe: Callable[[list[Append]], None],
        safety: CommitGate | None = None,
    ) -> None:
        self._store = store
        self._on_safe = on_safe
        self._safety: CommitGate = safety or Alone()
        self._safety.watch(self._moved)
        self._careful = True
        self._open: _Round | None = None
        self._undecided: deque[tuple[int, list[asyncio.Future[None]]]] = deque()
        """Decisions that are written and do not count yet, by the end of their records."""
        self._loop = asyncio.get_running_loop()
        self._appends: list[tuple[Append, Told]] = []
        self._records: list[PullRecord] = []
        self._decisions: list[asyncio.Future[None]] = []
        self._outliving: list[asyncio.Future[None]] = []
        self._placed: list[tuple[int, Placed]] = []  # By the number of the record in `_records`.
        self._exclusive: list[tuple[Job, asyncio.Future[None]]] = []
        self._busy = False
        self._kicked = False
        self._timer: asyncio.TimerHandle | None = None
        self._unsynced_since: float | None = None
        self._closed = False
        self._broken: DiskFailed | None = None
        self._undone: TernError | None = None
        """Replicas may have what could not be written here. Other bytes in its place would be of
        the same epoch, and nobody could tell them apart: nothing is written any more."""
        self._writer = start_worker("tern-writer")

    def append(self, append: Append, told: Told) -> None:
        """Store a batch; `told` is called on the loop once it is safe, or with the reason."""
        if self._closed or self._broken is not None:
            told(append, self._broken or Unavailable("the broker is stopping"))
            return
        if self._safety.refusal is not None:
            told(append, self._safety.refusal)
            return
        self._appends.append((append, told))
        if not self._busy and not self._kicked:
            self._kick()

    def progress(self, record: PullRecord, placed: Placed | None = None) -> None:
        """Write soon; losing it means that rows are handed out again."""
        if placed is not None:
            self._placed.append((len(self._records), placed))
        self._records.append(record)
        if self._timer is None and not self._busy:
            self._timer = self._loop.call_later(PROGRESS_DELAY_S, self._kick)

    def decide(self, records: list[PullRecord]) -> asyncio.Future[None]:
        """Write and sync; the future is done when the records are as safe as a publish."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self._closed or self._broken is not None:
            _settle(future, self._broken or Unavailable("the broker is stopping"))
            return future
        self._records += records
        self._decisions.append(future)
        if not self._busy and not self._kicked:
            self._kick()
        return future

    def outlives(self) -> asyncio.Future[None]:
        """Done when all progress up to now is known to whoever leads next: written here, so that a
        restart finds it; with replicas also there, as a decision is."""
        if not self._safety.alone or self._closed or self._broken is not None:
            return self.decide([])
        future: asyncio.Future[None] = self._loop.create_future()
        self._outliving.append(future)
        if not self._busy and not self._kicked:
            self._kick()
        return future

    def alone(self, job: Job) -> asyncio.Future[None]:
        """Run a blocking job on the writer thread while nothing is staged (a checkpoint)."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._exclusive.append((job, future))
        if not self._busy and not self._kicked:
            self._kick()
        return future

    async def close(self) -> None:
        """Write what waits, then stop the thread. What does not count by then stays unanswered:
        nobody may be told that it is not stored, since it may count later."""
        self._closed = True
        while self._busy or self._waiting or self._records or self._outliving or self._exclusive:
            if not self._busy and not self._kicked:
                self._kick()
            await asyncio.sleep(0.001)
        for future in [future for _, futures in self._undecided for future in futures]:
            _settle(future, Unavailable("the broker stopped before this was safe"))
        for append, told in self._appends:
            _guarded(told, append, Unavailable("the broker is stopping"))
        await self._writer.close()

    @property
    def _waiting(self) -> bool:
        """Batches can be written now."""
        return bool(self._appends) and self._open is None and not self._safety.paused

    def _kick(self) -> None:
        """Begin a round at the end of this turn of the loop, so that its whole turn gets in."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._busy and not self._kicked:
            self._kicked = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._kicked = False
        if self._busy:
            return
        if self._exclusive:
            job, future = self._exclusive.pop(0)
            self._busy = True
            self._writer.put(lambda: self._run_alone(job, future))
            return
        appends: list[tuple[Append, Told]] = []
        if self._waiting:
            appends, self._appends = self._appends, []
        records, self._records = self._records, []
        decisions, self._decisions = self._decisions, []
        placed, self._placed = self._placed, []
        outliving, self._outliving = self._outliving, []
        if not appends and not records and not decisions:
            self._outlived(outliving)
            if self._decisions:
                self._kick()
            return
        staged = self._stage(appends)
        if staged is None:
            appends = []
        staged_records = self._stage_records(records, decisions)
        if staged_records is None:
            _tell_placed(placed, None)
            self._outlived(outliving)
        if staged is None and staged_records is None:
            self._next()
            return
        sync_records = bool(decisions) or self._progress_is_old()
        now = _Round(appends, staged, staged_records, decisions, sync_records, placed, outliving)
        self._busy = True
        if not self._careful:
            self._offer(now)
        self._writer.put(lambda: self._write(now))

    def _stage(self, appends: list[tuple[Append, Told]]) -> StagedBatches | None:
        if not appends:
            return None
        try:
            self._check_undone()
            return self._store.messages.stage([append for append, _ in appends])
        except Exception as failed:
            error = _said(failed, "staging messages")
            for append, told in appends:
                told(append, error)
            return None

    def _stage_records(
        self, records: list[PullRecord], decisions: list[asyncio.Future[None]]
    ) -> StagedPulls | None:
        """None once the pull log has failed: progress is then in memory only, which a restart
        turns into repeats; decisions are refused. Messages go on."""
        try:
            self._check_undone()
            return self._store.pulls.stage(records)
        except Exception as failed:
            error = _said(failed, "staging records")
            for future in decisions:
                _settle(future, error)
            return None

    def _check_undone(self) -> None:
        if self._undone is not None:
            raise self._undone

    def _offer(self, now: _Round) -> None:
        if now.staged is not None:
            pass_on(self._safety, MESSAGES, now.staged.plan, sync=True)
        if now.records is not None:
            pass_on(self._safety, PULLS, now.records.plan, sync=bool(now.decisions))

    def _progress_is_old(self) -> bool:
        now = self._loop.time()
        if self._unsynced_since is None:
            self._unsynced_since = now
        if now - self._unsynced_since < PROGRESS_SYNC_S:
            return False
        self._unsynced_since = None
        return True

    # -- on the writer thread

    def _write(self, now: _Round) -> None:
        messages = records = None
        if now.staged is not None:
            messages = self._try(partial(self._store.messages.write, now.staged))
        if now.records is not None:
            records = self._try(partial(self._store.pulls.write, now.records, now.sync_records))
        self._loop.call_soon_threadsafe(self._finish, now, Written(messages, records))

    def _try(self, job: Job) -> TernError | None:
        """Run a write. A bug in it must not leave producers without an answer, nor go on."""
        try:
            job()
        except TernError as error:
            return error
        except Exception as bug:
            log.exception("writing failed by a bug")
            self._broken = DiskFailed(f"writing failed by a bug: {bug!r}; restart to recover")
            return self._broken
        return None

    def _run_alone(self, job: Job, future: asyncio.Future[None]) -> None:
        error = self._try(job)
        self._loop.call_soon_threadsafe(self._finish_alone, future, error)

    # -- back on the loop

    def _finish(self, now: _Round, written: Written) -> None:
        failed = written.messages or written.records
        error = written.messages
        undone = failed is not None and (not self._careful or isinstance(failed, DiskFailed))
        if failed is not None and undone and self._safety.undone(failed):
            self._undone = _perhaps_stored(failed)
            error = error and self._undone
        if self._careful and failed is None:
            self._offer(now)
        if failed is not None or now.staged is not None:
            self._careful = failed is not None
        self._finish_messages(now, error)
        self._finish_records(now, written.records)
        self._next()

    def _finish_messages(self, now: _Round, error: TernError | None) -> None:
        if now.staged is None:
            return
        if error is not None:
            self._store.messages.abandon(now.staged)
            log.error("messages not stored", reason=error.message, batches=len(now.appends))
            for append, told in now.appends:
                _guarded(told, append, error)
            return
        self._open = now
        self._safety.wrote(MESSAGES, now.staged.plan.end, now.staged.plan.end)
        self._commit_open()

    def _commit_open(self) -> None:
        """Make the open round visible if it counts by now, and tell everybody who asked."""
        now = self._open
        if now is None or now.staged is None:
            return
        if self._safety.mark(MESSAGES) < now.staged.plan.end:
            return
        self._open = None
        self._store.messages.commit(now.staged)
        _guarded(self._on_safe, [append for append, _ in now.appends])
        for append, told in now.appends:
            _guarded(told, append, None)

    def _finish_records(self, now: _Round, error: TernError | None) -> None:
        if now.records is None:
            return
        self._outlived(now.outliving)
        if error is None:
            end = now.records.plan.end
            # Progress that is not synced may be lost here, so nobody else may hold it for safe.
            self._safety.wrote(PULLS, end, self._store.pulls.synced_offset)
            self._store.pulls.commit(now.records, safe=self._safety.mark(PULLS) >= end)
            _tell_placed(now.placed, now.records.offsets)
            if now.decisions:
                self._undecided.append((end, now.decisions))
            self._settle_decided()
            return
        _tell_placed(now.placed, None)
        self._store.pulls.abandon(now.records)
        harmless = isinstance(error, DiskFull) and not now.decisions
        (log.warning if harmless else log.error)(
            "pull log not written", reason=error.message, decisions=len(now.decisions)
        )
        for future in now.decisions:
            _settle(future, error)

    def _outlived(self, waiting: list[asyncio.Future[None]]) -> None:
        """Their records are written, or cannot be: then they are in memory only, which a restart
        turns into repeats. Where a replica has come meanwhile it has to have them too."""
        if self._safety.alone:
            for future in waiting:
                _settle(future, None)
        else:
            self._decisions += waiting

    def _settle_decided(self) -> None:
        """Let records count that do by now, and tell those who wait for them."""
        pulls, mark = self._store.pulls, self._safety.mark(PULLS)
        if min(mark, pulls.end) > pulls.safe_offset:
            pulls.advance(min(mark, pulls.end))
        while self._undecided and self._undecided[0][0] <= mark:
            for future in self._undecided.popleft()[1]:
                _settle(future, None)

    def _moved(self) -> None:
        """More counts than before, or messages are refused from now on."""
        self._settle_decided()
        self._commit_open()
        refusal = self._safety.refusal
        if refusal is not None and self._appends:
            appends, self._appends = self._appends, []
            for append, told in appends:
                _guarded(told, append, refusal)
        if self._waiting and not self._busy and not self._kicked:
            self._kick()

    def _finish_alone(self, future: asyncio.Future[None], error: TernError | None) -> None:
        pulls = self._store.pulls
        if error is None and pulls.failed is None:  # It may have synced progress.
            self._safety.wrote(PULLS, pulls.end, pulls.synced_offset)
            self._settle_decided()
        _settle(future, error)
        self._next()

    def _next(self) -> None:
        self._busy = False
        if self._waiting or self._decisions or self._outliving or self._exclusive:
            self._begin()
        elif self._records and self._timer is None:
            self._timer = self._loop.call_later(PROGRESS_DELAY_S, self._kick)

    @property
    def failed(self) -> TernError | None:
        """Why nothing can be stored until a restart, if so."""
        return self._broken or self._store.messages.failed


def _perhaps_stored(error: TernError) -> TernError:
    """The next master may have it, so this is no refusal."""
    return Unavailable(f"not stored here, perhaps by a replica: {error.message}")


def _tell_placed(placed: list[tuple[int, Placed]], offsets: list[int] | None) -> None:
    for number, tell in placed:
        tell(None if offsets is None else offsets[number])


def _guarded(tell: Callable[..., None], *arguments: Any) -> None:
    """Whoever is told must not be able to stop the rounds: a bug there costs only itself."""
    try:
        tell(*arguments)
    except Exception as bug:
        log.error("telling about a round failed by a bug", error=repr(bug))


def _said(failed: Exception, what: str) -> TernError:
    """Our own errors as they are; a bug is logged and told as what it is."""
    if isinstance(failed, TernError):
        return failed
    log.error("a bug while storing", what=what, error=repr(failed))
    return TernError(f"the broker failed while {what}; its log says why")


def _settle(future: asyncio.Future[None], error: TernError | None) -> None:
    """Everybody who waits gets an error of their own: raising writes a traceback into it."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(type(error)(error.message, **error.details))
