"""The files of one delay server: two logs, the files of hours derived from them, the checkpoint.

Everything here blocks and is called on the thread that owns the files in question:

    thread              does                                             owns
    tern-delay-wal      writes messages that arrive                      the message log's end
    tern-delay-decide   writes decisions                                 the journal's end
    tern-delay-schedule schedules, derives, loads, writes checkpoints,   the ends of schedule and
                        removes                                          dispatch logs
    tern-delay-worker   `record` (reads)                                 nothing

Two logs are what happened, and are what replicas copy: the message log and the decisions journal.
Everything else is made of their safe parts (`derivation`). The hours in memory are not in here:
they belong to `FollowingStore` until this member leads, then to `Engine`.
"""

from ternmq.batch.view import BatchView
from ternmq.core.clock import Clock
from ternmq.core.errors import TernError
from ternmq.delay.formats.checkpoint import DelayCheckpoint
from ternmq.delay.store.checkpoints import Checkpoints
from ternmq.delay.store.derivation import Derivation
from ternmq.delay.store.epochs import DelayEpochs
from ternmq.delay.store.journal import Deciding
from ternmq.delay.store.loader import Opened, open_journal, open_messages
from ternmq.delay.store.record_cache import RecordCache
from ternmq.delay.store.unreadable_records import UnreadableRecords
from ternmq.storage.config import StorageConfig
from ternmq.storage.log.leader_epochs import Starts
from ternmq.storage.messages.message_log import MessageLog


class DelayStore:
    """Everything a delay server keeps on disk."""

    def __init__(
        self, opened: Opened, *, clock: Clock, hour_ms: int, config: StorageConfig, suffix: bool
    ) -> None:
        """Use `FollowingStore.open`. With `suffix` not everything that is written is safe."""
        self.disk = opened.disk
        self.paths = opened.paths
        self.report = opened.report
        self.schedule_files = opened.schedule_files
        self.dispatch_files = opened.dispatch_files
        self.wal = open_messages(opened, clock=clock, config=config, suffix=suffix)
        self.decisions = open_journal(opened, suffix=suffix)
        self._clock = clock
        self._hour_ms = hour_ms
        self._epochs = DelayEpochs(opened.history, self.wal, self.decisions)
        self.derivation = Derivation(
            opened, self.wal, self.decisions, self._epochs, hour_ms=hour_ms, replicated=suffix
        )
        self._records = RecordCache(self.schedule_files)
        self.checkpoints = Checkpoints(
            opened, self.wal, self.decisions, self.derivation, self._records
        )
        self.unreadable = UnreadableRecords()
        self._given_up: TernError | None = None

    @property
    def messages(self) -> MessageLog:
        return self.wal.messages

    @property
    def known(self) -> DelayCheckpoint:
        """The last checkpoint."""
        return self.checkpoints.known

    @property
    def names(self) -> dict[int, str]:
        """Topic names by id, for people."""
        return self.checkpoints.names

    @property
    def taken(self) -> dict[tuple[int, int], int]:
        """How far brokers' topics were taken, by producer."""
        return self.checkpoints.taken

    @property
    def failed(self) -> TernError | None:
        """Why nothing can be kept until a restart, if so."""
        return (
            self.messages.failed
            or self.decisions.failed
            or self.schedule_files.failed
            or self.dispatch_files.failed
            or self.derivation.failed
            or self._given_up
        )

    def give_up(self, error: TernError) -> None:
        """Nothing is done here any more until a restart."""
        self._given_up = self._given_up or error

    def look(self) -> None:
        """Notice files that were removed under us; blocks. Any thread."""
        self.wal.source.look()
        self.decisions.look()
        self.schedule_files.look()
        self.dispatch_files.look()

    def record(self, start: int, offset: int, size: int) -> BatchView:
        """One checked record of a schedule log; raises `Corrupt`. Any thread."""
        return self._records.get(start, offset, size)

    def decide(self, items: list[Deciding]) -> None:
        """Write decisions that count when they are on this disk; each item gets its error."""
        try:
            staged = self.decisions.stage(items, scheduled=self.derivation.scheduled_to, sync=False)
        except TernError as error:
            _fail(items, error)
            return
        try:
            self.decisions.write(staged)
        except TernError as error:
            self.decisions.abandon(staged)
            _fail(items, error)
        else:
            self.decisions.commit(staged)

    def checkpoint(self, now: DelayCheckpoint) -> None:
        """Write this checkpoint, unless nothing can be kept any more."""
        if self.failed is None:
            self.checkpoints.write(now)

    # Members of a group

    def tables(self) -> dict[int, list[tuple[int, int]]]:
        """(epoch, start) of every epoch, by log: 0 the message log, 1 the journal."""
        return self._epochs.tables()

    def begin_epoch(self, epoch: int) -> None:
        """Lead under this epoch from the end of both logs on; before the first append. Blocks. The
        journal gets a first record: what follows is cut into hours of the length set here."""
        self._epochs.begin(
            epoch,
            hour_ms=self._hour_ms,
            derived_to=self.derivation.derived_to,
            clock=self._clock,
        )

    def adopt_epochs(self, tables: dict[int, Starts]) -> None:
        """Follow the master that has these tables; after `truncate`, before the first `receive`.
        Blocks."""
        self._epochs.adopt(tables)

    def truncate(self, message_to: int, decision_to: int, *, waits: bool = True) -> None:
        """Cut both logs off here; blocks, while nothing is written. Killed in the middle, the next
        start finishes it. Raises `Diverged` and leaves everything as it is where that would touch
        what was acknowledged; `waits` as in `EpochHistory.truncate`."""
        self._epochs.truncate(message_to, decision_to, waits=waits)

    def close(self) -> None:
        self.wal.source.close()
        self.decisions.close()
        self.schedule_files.close()
        self.dispatch_files.close()


def _fail(items: list[Deciding], error: TernError) -> None:
    for item in items:
        item.error = error
