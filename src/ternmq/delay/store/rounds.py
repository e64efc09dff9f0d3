"""Group commit: everything that waits is written by one call and made safe by one sync.

A `Rounds` has one thread, the only one that writes its log. Items gather on the event loop; a round
takes all of them: `stage` (loop, memory only), `write` (thread, blocks), `finish` (loop, once it
counts, or with the error). While a round is on the disk the next one gathers. The delay server has
two: one for messages that arrive, one for decisions about rows. Never blocks the loop.

What is written counts once `CommitGate` says so: at once for a server that is alone, with replicas
when every required one has it. The bytes of a round go to them while our own disk works; at the
start and after a failed write only when they are on our own disk (*careful*). Messages wait for
those before them, so that their numbers have no gaps; decisions do not. Nothing is written once
another leads: what was offered there and is not here would be another history of the same epoch.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from ternmq.core.errors import DiskFailed, NotMaster, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.core.worker import start_worker
from ternmq.replication.commit_gate import Alone, CommitGate, pass_on
from ternmq.storage.log.write_plan import WritePlan

log = get_logger()

SYNC_S = 1.0
"""What nobody waits for is on disk, and counts, after this."""

Item = TypeVar("Item")
Stage = TypeVar("Stage")
Pass = Callable[[WritePlan, bool], None]
"""What is about to be written, and whether somebody waits until it is on disk."""


class Written(NamedTuple):
    """What a write put on disk."""

    end: int
    sync: bool
    """Whoever waits for it waits until it counts."""


class Way(Protocol[Item, Stage]):
    """A log that rounds are written to."""

    number: int
    in_turn: bool
    """A round waits until the one before counts; and while nothing is taken at all."""

    def stage(self, items: list[Item]) -> Stage:
        """On the loop, in memory."""

    def write(self, staged: Stage, passing: Pass) -> Written:
        """On the thread; `passing` is called before anything is on the disk."""

    def sync(self) -> None:
        """On the thread."""

    def durable(self) -> int:
        """How much of the log is on disk."""

    def advance(self, mark: int) -> None:
        """Everything below counts, on the loop."""

    def finish(self, items: list[Item], staged: Stage | None, error: TernError | None) -> None:
        """On the loop: they count, or why they were not written."""


class _Open(NamedTuple, Generic[Item, Stage]):
    """A round that is written and does not count yet."""

    end: int
    items: list[Item]
    staged: Stage


class Rounds(Generic[Item, Stage]):
    """One way to the disk."""

    def __init__(self, name: str, way: Way[Item, Stage], safety: CommitGate | None = None) -> None:
        self._way = way
        self._safety: CommitGate = safety or Alone()
        self._loop = asyncio.get_running_loop()
        self._items: list[Item] = []
        self._open: deque[_Open[Item, Stage]] = deque()
        self._busy = False
        self._kicked = False
        self._closed = False
        self._careful = True
        self._offered = False
        self._end = 0
        self._put = self._told = 0
        self._syncing: asyncio.TimerHandle | None = None
        self.broken: TernError | None = None
        """Why nothing can be written until a restart: a bug in writing."""
        self._writer = start_worker(name)
        self._safety.watch(self._moved)

    def put(self, item: Item) -> None:
        """Write it with the next round; `finish` says how it went."""
        error = self._refusal
        self._put += 1
        if error is not None:
            self._loop.call_soon(self._tell, [item], None, error)
            return
        self._items.append(item)
        self._kick()

    async def flush(self) -> None:
        """Wait until what has come so far is told."""
        upto = self._put
        while self._told < upto:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        """Write what waits, then stop the thread. What is written and does not count by then stays
        unanswered where it can not be taken back: it may count later."""
        self._closed = True
        if self._syncing is not None:
            self._syncing.cancel()
        while self._busy or (self._items and self._may_begin):
            if not self._busy and not self._kicked:
                self._begin()
            await asyncio.sleep(0.001)
        stopped = Unavailable("the delay server stopped before this was safe")
        if not self._way.in_turn:
            for each in self._open:
                self._tell(each.items, each.staged, stopped)
        if self._items:
            items, self._items = self._items, []
            self._tell(items, None, Unavailable("the delay server is stopping"))
        await self._writer.close()

    @property
    def _refusal(self) -> TernError | None:
        """Why nothing new is taken."""
        said = self._safety.refusal
        if self.broken is not None:
            return self.broken
        if self._closed:
            return Unavailable("the delay server is stopping")
        return said if self._way.in_turn or isinstance(said, NotMaster) else None

    @property
    def _may_begin(self) -> bool:
        if isinstance(self._safety.refusal, NotMaster) or self.broken is not None:
            return False
        return not (self._way.in_turn and (self._open or self._safety.paused))

    def _kick(self) -> None:
        if not self._busy and not self._kicked and self._items and self._may_begin:
            self._kicked = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._kicked = False
        if self._busy or not self._items or not self._may_begin:
            return
        items, self._items = self._items, []
        try:
            staged = self._way.stage(items)
        except TernError as error:
            self._tell(items, None, error)
            return
        except Exception as bug:
            log.exception("staging failed by a bug")
            self._tell(items, None, TernError(f"the delay server failed: {bug!r}; see its log"))
            return
        self._busy = True
        self._offered = False
        careful = self._careful
        self._writer.put(lambda: self._run(items, staged, careful=careful))

    # -- on the writer thread

    def _run(self, items: list[Item], staged: Stage, *, careful: bool) -> None:
        plans: list[tuple[WritePlan, bool]] = []

        def passing(plan: WritePlan, sync: bool) -> None:
            if self._safety.alone:
                return  # Who copies without being needed reads it from the disk.
            if careful:
                plans.append((plan, sync))
            else:
                self._loop.call_soon_threadsafe(self._offer, plan, sync)

        done: Written | TernError
        try:
            done = self._way.write(staged, passing)
        except TernError as failed:
            done = failed
        except Exception as bug:
            log.exception("writing failed by a bug")
            done = DiskFailed(f"writing failed by a bug: {bug!r}; restart to recover")
            self.broken = done
        self._loop.call_soon_threadsafe(self._done, items, staged, done, plans)

    def _sync(self) -> None:
        try:
            self._way.sync()
        except TernError as error:
            log.error("not synced", reason=error.message)
        self._loop.call_soon_threadsafe(self._synced)

    # -- back on the loop

    def _offer(self, plan: WritePlan, sync: bool) -> None:
        self._offered = True
        pass_on(self._safety, self._way.number, plan, sync=sync)

    def _done(
        self,
        items: list[Item],
        staged: Stage,
        done: Written | TernError,
        plans: list[tuple[WritePlan, bool]],
    ) -> None:
        self._busy = False
        if isinstance(done, TernError):
            self._failed(items, staged, done)
        else:
            self._careful = False
            for each in plans:
                self._offer(*each)
            self._wrote(done.end)
            if done.sync:
                self._open.append(_Open(done.end, items, staged))
            else:
                self._tell(items, staged, None)
                if self._syncing is None:
                    self._syncing = self._loop.call_later(SYNC_S, self._sync_soon)
            self._settle()
        self._kick()

    def _failed(self, items: list[Item], staged: Stage, error: TernError) -> None:
        """Bytes that others may have, and we have not, may count one day: then nobody can say that
        this was not stored."""
        self._careful = True
        if self._offered or isinstance(error, DiskFailed):
            uncertain = self._safety.undone(error) and self._offered
            if uncertain:
                error = Unavailable(f"not known whether it is stored: {error.message}")
        self._tell(items, staged, error)

    def _settle(self) -> None:
        """Let count what does by now, and tell those who wait for it."""
        mark = self._safety.mark(self._way.number)
        self._way.advance(mark)
        while self._open and self._open[0].end <= mark:
            counts = self._open.popleft()
            self._tell(counts.items, counts.staged, None)

    def _moved(self) -> None:
        """More counts than before, or nothing is taken from now on."""
        self._settle()
        error = self._refusal
        if error is not None and self._items and not self._closed:
            items, self._items = self._items, []
            self._tell(items, None, error)
        self._kick()

    def _sync_soon(self) -> None:
        self._syncing = None
        if not self._closed:
            self._writer.put(self._sync)

    def _synced(self) -> None:
        self._wrote(self._end)
        self._settle()

    def _wrote(self, end: int) -> None:
        self._end = end
        self._safety.wrote(self._way.number, end, min(end, self._way.durable()))

    def _tell(self, items: list[Item], staged: Stage | None, error: TernError | None) -> None:
        """Whoever is told must not be able to stop the rounds: a bug there costs only itself."""
        self._told += len(items)
        try:
            self._way.finish(items, staged, error)
        except Exception:
            log.exception("telling about a round failed by a bug")
