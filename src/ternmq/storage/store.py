"""The data directory of one broker: opens and recovers it, writes checkpoints, closes it.

Start order: checkpoint file, message log with its consume log and producers, pull log, and last the
marker that says a broker is running. Stop order is the reverse: pull log and message log synced,
everything checkpointed, marker removed. Who may open the directory is decided elsewhere (a lock).

`checkpoint` is called every few seconds on the writer thread. It makes a later start cheap and is
never needed for safety, so a full disk there is logged and otherwise ignored.

A member of a group with replicas opens with a suffix: only what the last checkpoint knew to be
safe is visible, the rest waits for `advance`. Nothing derived ever covers the suffix, so `truncate`
has only raw bytes to cut. A member that is alone in sync opens without: all it has is safe.
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ternmq.core.clock import Clock
from ternmq.core.errors import Corrupt, DiskFailed, DiskFull
from ternmq.core.log import get_logger
from ternmq.storage import bootstrap
from ternmq.storage.bootstrap import BootstrapState
from ternmq.storage.config import AS_IT_IS, StorageConfig, StoreOpening
from ternmq.storage.consume.consume_log import ConsumeLog
from ternmq.storage.files import checkpoint as checkpoint_file
from ternmq.storage.files import log_start as log_start_file
from ternmq.storage.files import unclean_marker
from ternmq.storage.files.checkpoint import Checkpoint
from ternmq.storage.files.disk import Disk
from ternmq.storage.files.log_mark import LogMark
from ternmq.storage.files.log_start import LogStart
from ternmq.storage.files.paths import TAIL_SUFFIX, TEMPORARY_SUFFIX, Paths, bases
from ternmq.storage.index.index import MessageIndex, Rest, do_not_rest
from ternmq.storage.loader import Loader, LoadMarks
from ternmq.storage.log import recovery
from ternmq.storage.log.epoch_history import EpochHistory, LogPair, redo_cut
from ternmq.storage.log.leader_epochs import Starts
from ternmq.storage.log.recovery_report import RecoveryReport
from ternmq.storage.log.retention_rules import Segment
from ternmq.storage.log.segmented_log import SegmentedLog
from ternmq.storage.messages.message_log import Derived, MessageLog, OnCorrupt
from ternmq.storage.messages.producers import ProducerTable
from ternmq.storage.messages.search import Search
from ternmq.storage.messages.transactions import SNAPSHOT_AFTER, TransactionTable
from ternmq.storage.pull.pull_log import PullLog
from ternmq.storage.pull.record import PullFormat

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLogs:
    """Numbers that the data uses: the registry must not give them out again."""

    topic_ids: frozenset[int]
    group_id: int
    """The highest."""
    epoch: int


class Store:
    """Everything a broker keeps on disk."""

    messages: MessageLog
    consume: ConsumeLog
    pulls: PullLog
    producers: ProducerTable
    halves: TransactionTable
    index: MessageIndex
    search: Search
    report: RecoveryReport

    def __init__(
        self, disk: Disk, directory: Path, *, clock: Clock, epoch: int, config: StorageConfig
    ) -> None:
        """Use `Store.open`."""
        self._disk = disk
        self._paths = Paths(directory)
        self._history = EpochHistory(disk, self._paths.epochs)
        self._clock = clock
        self._config = config
        self.report = RecoveryReport()
        self._epoch = epoch
        self._epoch_before = 0
        self._last = Checkpoint()
        self._log_start = LogStart()
        self._producers_cover = 0
        self._closed = False

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: Path,
        *,
        clock: Clock,
        epoch: int,
        config: StorageConfig,
        opening: StoreOpening = AS_IT_IS,
        on_corrupt: OnCorrupt | None = None,
    ) -> "Store":
        """Open and, where the last run crashed, recover. Raises `DiskFull` or `DiskFailed`."""
        store = cls(disk, directory, clock=clock, epoch=epoch, config=config)
        suffix = opening.suffix
        again = opening.again and disk.exists(store._paths.unclean)
        store._prepare(again=again)
        bootstrap.finish_base(disk, store._paths)
        known = store._read_checkpoint()
        store._history.load(store.report)
        store._open_messages(known, suffix, on_corrupt)
        store._open_pulls(known, suffix=suffix)
        store._history.cut_done()
        from_memory = config.flush == "async"
        unclean_marker.note(disk, store._paths, acks_from_memory=from_memory, keep=not again)
        store._last = known
        store._remove_old_tails()
        if not again:
            store.checkpoint()
        log.info(
            "store opened",
            directory=str(directory),
            unclean=store.report.unclean,
            cuts=len(store.report.cuts),
            holes=len(store.report.holes),
            tables_rebuilt=len(store.report.tables_rebuilt),
            bytes_read=store.report.bytes_read,
            topics=len(store.consume.ends),
            safe_offset=store.messages.safe_offset,
        )
        return store

    def _prepare(self, *, again: bool) -> None:
        self._disk.mkdir(self._paths.directory)
        for directory in self._paths.directories():
            self._disk.mkdir(directory)
        self.report.unclean = not again and self._disk.exists(self._paths.unclean)
        for directory in (self._paths.directory, *self._paths.directories()) if not again else ():
            # A name that a killed process made and did not sync is seen, and can still be lost.
            self._disk.sync_dir(directory)
        for directory in (
            self._paths.directory,
            self._paths.consume,
            self._paths.index,
            self._paths.quarantine,
        ):
            for name in self._disk.names(directory):
                if name.endswith(TEMPORARY_SUFFIX):
                    self._disk.unlink(directory / name)

    def _read_checkpoint(self) -> Checkpoint:
        if not self._disk.exists(self._paths.checkpoint):
            return Checkpoint()
        try:
            return checkpoint_file.decode(self._disk.read(self._paths.checkpoint))
        except Corrupt as error:
            log.error("the checkpoint file is bad; more of the logs is read", error=error.message)
            self.report.notes.append(error.message)
            return Checkpoint()

    def _open_messages(self, known: Checkpoint, suffix: bool, on_corrupt: OnCorrupt | None) -> None:
        self._message_segments = SegmentedLog(
            self._disk,
            self._paths.message,
            segment_size=self._config.segment_size,
            records_max=self._config.segment_batches_max,
            files_open_max=self._config.files_open_max,
            room=self._disk.room,
            mark=LogMark(self._disk, self._paths.message_mark),
        )
        epochs = self._history.epochs
        redo_cut(self._message_segments, epochs.message_cut)
        opening = Loader(
            self._disk,
            self._paths,
            source=self._message_segments,
            config=self._config,
            marks=LoadMarks(known, epochs.messages, suffix),
            report=self.report,
        )
        self.consume = opening.run(self._clock)
        self.producers = opening.producers
        self.halves = opening.halves
        self.index = MessageIndex(
            self._disk, self._paths, self._message_segments, opening.safe_offset
        )
        self._log_start, self._producers_cover = opening.log_start, opening.producers_from
        derived = Derived(self.consume, self.producers, self.index, self.halves)
        self.messages = MessageLog(
            self._message_segments,
            derived,
            clock=self._clock,
            epoch=self._epoch,
            config=self._config,
            safe_offset=opening.safe_offset,
            on_corrupt=on_corrupt,
        )
        self.messages.not_before(opening.stored_at_ms)
        self.messages.prove(opening.acknowledged)
        self.search = Search(self.index, self.consume, self.messages)
        self._epoch_before = max(opening.epoch, epochs.last)
        self._suffix_topic_ids = opening.suffix_topic_ids

    def _open_pulls(self, known: Checkpoint, *, suffix: bool) -> None:
        segments = self._pull_segments = SegmentedLog(
            self._disk,
            self._paths.pull,
            segment_size=self._config.pull_segment_size,
            files_open_max=self._config.files_open_max,
            mark=(mark := LogMark(self._disk, self._paths.pull_mark)),
        )
        epochs = self._history.epochs
        redo_cut(segments, epochs.pull_cut)
        start = max(known.pull_durable, segments.active_base)
        if start > segments.end:
            start = segments.active_base  # Shorter than it was: find out what is left.
        recovery.keep_short_segments(segments, start, self._paths, self.report)
        found = recovery.scan(
            segments,
            start=start,
            durable=max(known.pull_durable, mark.synced),
            form=recovery.OwnMarks(PullFormat(), epochs.pulls.is_own),
            visit=lambda offset, data, problem: None,
        )
        self.report.bytes_read += found.bytes_read
        verdict = recovery.decide(found)
        recovery.repair(segments, found, verdict, self._paths, self.report)
        if self.report.unclean:
            segments.cut(segments.end)
        safe = max(segments.start, min(known.pull_safe, segments.end))
        self.pulls = PullLog(
            segments,
            clock=self._clock,
            flush_interval_ms=self._config.pull_flush_interval_ms,
            keep=self._config.pull_keep,
            replay_from=max(segments.start, min(known.pull_replay_from, segments.end)),
            damaged=self._pulls_damaged,
            safe_offset=safe if suffix else None,
        )
        if suffix:
            self.pulls.take_stock()

    def _pulls_damaged(self, gaps: list[recovery.Gap], group_ids: list[int]) -> None:
        """Damage that only reading the pull log shows, because a checkpoint covers those bytes.

        The copy is kept for ever; the segment goes when no living group needs it, like any other.
        """
        known = {hole.offset for hole in self.report.holes if hole.log == "pull"}
        new = [gap for gap in gaps if gap.start not in known]
        recovery.keep_holes(self._pull_segments, new, self._paths, self.report)
        for group_id in group_ids:
            log.error(
                "a group cannot be rebuilt: what made it is damaged; make it again where it "
                "should go on",
                group_id=group_id,
                damaged_at=[gap.start for gap in gaps],
            )
            self.report.notes.append(f"group {group_id} cannot be rebuilt from the pull log")

    def _remove_old_tails(self) -> None:
        """Tail files of sealed segments are of no more use once tables and producers are safe."""
        found = bases(self._disk.names(self._paths.consume), TAIL_SUFFIX)
        old = [base for base in found if base != self.consume.active_base]
        if old:
            try:
                self._write_producers(clean=False)
                self._write_halves()
            except DiskFull as error:
                log.warning("no space for the producers file", error=error.message)
                return
            for base in old:
                self._disk.unlink(self._paths.tail(base))

    def known(self) -> KnownLogs:
        """Ids and epoch found at this start. Blocks; to be asked before `pulls.replay`."""
        survey = self.pulls.survey()
        return KnownLogs(
            topic_ids=frozenset(
                {
                    *self.consume.topic_ids(),
                    *self.halves.topic_ids(),
                    *self._suffix_topic_ids,
                    *survey.lane_ids,
                }
                - {0}
            ),
            group_id=max(survey.group_ids, default=0),
            epoch=self._epoch_before,
        )

    @property
    def epoch(self) -> int:
        """Which life of the broker group this is."""
        return self._epoch

    @property
    def placement_path(self) -> Path:
        """Where its broker keeps the placement of order keys."""
        return self._paths.placement

    def use_epoch(self, epoch: int) -> None:
        """Write under this epoch, not the one it was opened with; before the first append."""
        assert epoch > self._epoch_before, "an epoch is never used twice"
        self._epoch = self.messages.epoch = epoch

    # Members of a group

    def tables(self) -> dict[int, list[tuple[int, int]]]:
        """(epoch, start) of every epoch, by log: 0 the message log, 1 the pull log."""
        return self._history.tables()

    def begin_epoch(self, epoch: int) -> None:
        """Lead under this epoch from the end of both logs on; before the first append. Blocks."""
        self._history.begin(epoch, self.messages.end, self.pulls.end)
        self.use_epoch(epoch)

    def adopt_epochs(self, tables: dict[int, Starts]) -> None:
        """Follow the master that has these tables; after `truncate`, before the first `receive`.
        Blocks."""
        empty = self.messages.end == self.messages.start_offset
        self._history.adopt(tables, empty=empty and self.pulls.end == self.pulls.start_offset)

    def truncate(self, message_to: int, pull_to: int, *, waits: bool = True) -> None:
        """Cut both logs off here; blocks, on the writer thread, while nothing is written. Killed in
        the middle, the next start finishes it. Raises `Diverged` and leaves everything as it is
        where that would touch what was acknowledged; `waits` as in `EpochHistory.truncate`."""
        logs = LogPair(self.messages, self.pulls, name="records", key="pull")
        lower = partial(self._lower_checkpoint, message_to, pull_to)
        self._history.truncate(logs, message_to, pull_to, before=lower, waits=waits)

    def _lower_checkpoint(self, message_to: int, pull_to: int) -> None:
        self._write_checkpoint(
            replace(
                self._last,
                message_durable=min(self._last.message_durable, message_to),
                pull_durable=min(self._last.pull_durable, pull_to),
            )
        )

    def base_state(self) -> bytes:
        """What an empty replica needs of what is no longer in the logs; blocks, on the writer
        thread, while nothing becomes safe. See `bootstrap.install_base`."""
        log_start = self._log_start  # Read once: retention may be at work.
        start = max(self.messages.start_offset, log_start.offset)
        changes = self.halves.changes
        state = BootstrapState(
            message_start=start,
            pull_start=self.pulls.start_offset,
            floor=log_start_file.encode(LogStart(start, log_start.ends)),
            producers=self.producers.snapshot(start),
            halves=self.halves.snapshot(start),
        )
        self.halves.changes = changes  # That was not for our own file.
        return bootstrap.encode(state)

    def drop_before(self, start: int) -> int:
        """A replica: remove whole segments that the master has removed, as far as nothing here
        needs them; returns how many. Blocks, on the writer thread."""
        gone = 0
        while sealed := self.consume.sealed():
            hold = self.halves.hold_offset()
            if sealed[0].end > start or (hold is not None and hold < sealed[0].end):
                break
            self.consume.trim(self.firsts_without(sealed[0]))
            self.drop_oldest(sealed[0].base)
            gone += 1
        return gone

    def checkpoint(self) -> None:
        """Write down how far everything is; blocks. Called on the writer thread."""
        try:
            self._checkpoint(clean=False)
        except DiskFull as error:
            log.warning("no space for a checkpoint", error=error.message)
        except DiskFailed as error:
            log.error("a checkpoint failed; a restart will read more", error=error.message)

    def _checkpoint(self, *, clean: bool) -> None:
        if self.messages.failed is not None or self.pulls.failed is not None:
            return
        waiting = self.consume.pending_size()
        self.messages.sync()  # With flush=sync there is nothing to do.
        sealed = self.consume.write_tables()
        if sealed or clean:
            self._write_producers(clean=clean)
        if sealed or clean or self.halves.changes >= SNAPSHOT_AFTER:
            self._write_halves()
        self.consume.write_tail(waiting)
        for base in sealed:
            self._disk.unlink(self._paths.tail(base))
        self.pulls.sync()
        now = Checkpoint(
            clean=clean,
            epoch=max(self._epoch, self._epoch_before),
            message_durable=self.messages.synced_offset,
            consume_covered=self.consume.tail_file.covered,
            pull_durable=self.pulls.synced_offset,
            pull_replay_from=self.pulls.replay_from(),
            stored_at_ms=self.messages.stored_at_ms,
            message_safe=min(self.messages.safe_offset, self.messages.synced_offset),
            pull_safe=self.pulls.bounds()[1],
        )
        self._write_checkpoint(now)
        self.pulls.trim()

    def _write_checkpoint(self, now: Checkpoint) -> None:
        if now != self._last:
            self._disk.write_atomic(self._paths.checkpoint, checkpoint_file.encode(now))
            self._last = now

    def look(self) -> None:
        """Notice logs that were removed under us; blocks. Any thread."""
        try:
            self._message_segments.look()
            self._pull_segments.look()
        except (DiskFull, DiskFailed) as error:
            log.warning("the logs cannot be looked at", error=error.message)

    def upkeep_index(self, rest: Rest = do_not_rest) -> None:
        """Bring the index up to date; blocks, not on the writer thread. `rest` lets others run."""
        try:
            self.index.work(lambda: self.messages.synced_offset, rest)
        except (DiskFull, DiskFailed, Corrupt) as error:
            log.warning("the index is behind", error=error.message)

    def _write_producers(self, *, clean: bool) -> None:
        self.producers.forget_silent(self._clock.now_ms())
        covers = self.messages.safe_offset if clean else self.consume.active_base
        content = self.producers.snapshot(covers)
        self.messages.sync()  # Nothing in the snapshot may be younger than the log on disk.
        self._disk.write_atomic(self._paths.producers, content)
        self._producers_cover = covers

    def firsts_without(self, segment: Segment) -> dict[int, int]:
        """Where topics begin once the oldest segment is gone; may wait for the disk."""
        firsts = self.consume.ends_at(segment.base)
        for topic_id, first in self.halves.cross_segment.firsts(segment.end).items():
            firsts[topic_id] = max(first, firsts.get(topic_id, 0))
        return firsts

    def drop_oldest(self, base: int) -> None:
        """Remove the oldest segment, which is sealed; blocks, on the writer thread.

        First it is safe that the segment is gone and what topics and producers need of it; killed
        behind that, the next start goes on removing.
        """
        segment = self.consume.sealed()[0]
        assert segment.base == base == self._message_segments.start
        if self._producers_cover < segment.end:
            self._write_producers(clean=False)
        self.halves.cross_segment.let_go(segment.end, self._log_start.ends)
        self._write_halves()  # Outcomes are remembered longer than the log that tells them.
        # Deleted topics are forgotten one segment after their last message.
        before = self._log_start.ends.items()
        ends = {topic: end for topic, end in before if self.consume.is_known(topic)}
        log_start = LogStart(segment.end, ends | self.consume.ends_at(base))
        self._disk.write_atomic(self._paths.floor, log_start_file.encode(log_start))
        self._log_start = log_start
        try:
            self._message_segments.drop_before(segment.end)
        finally:  # Whatever the disk said: the floor holds.
            self.consume.drop_table(base)

    def _write_halves(self) -> None:
        """A round may become safe meanwhile; what the file has beyond `covers` is applied again."""
        covers = self.messages.safe_offset
        content = self.halves.snapshot(covers)
        self.messages.sync()
        self._disk.write_atomic(self._paths.halves, content)

    def close(self, *, again: bool = False) -> bool:
        """Flush, checkpoint, remove the marker; True: in order. After a failure the marker stays.
        `again`: this process opens it once more at once, so the marker stays too."""
        if self._closed:
            return False
        self._closed = True
        try:
            if self.messages.failed is None and self.pulls.failed is None:
                self._checkpoint(clean=True)
                self.index.close(self.messages.synced_offset)
                if not again:
                    unclean_marker.remove(self._disk, self._paths)
                return True
        except (DiskFull, DiskFailed) as error:
            log.error("could not close cleanly; the next start recovers", error=error.message)
        finally:
            self.consume.tail_file.close()
            self._message_segments.close()
            self._pull_segments.close()
        return False
