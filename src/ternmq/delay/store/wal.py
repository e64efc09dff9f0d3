"""The delay server's message log: every delayed batch in arrival order, safe before it is answered.

The bytes and the three steps (stage, write, commit) are those of a broker's message log; instead of
a consume log there is only a count of rows per topic, which numbers them and is the ledger's
`accepted`. A start reads what came after the checkpoint. A batch leaves once it lies in the
schedule logs and a checkpoint says so; `forget_before` then removes whole segments.
"""

from dataclasses import dataclass, field

from ternmq.batch.layout import STORED_SIZE_MAX, read_stamp
from ternmq.core.clock import Clock
from ternmq.core.errors import Corrupt
from ternmq.core.log import get_logger
from ternmq.core.units import MIB
from ternmq.delay.formats.checkpoint import DelayCheckpoint
from ternmq.delay.formats.paths import DelayPaths
from ternmq.storage.config import StorageConfig
from ternmq.storage.consume.batch_scan import Collector, MessageFormat
from ternmq.storage.consume.entry import RECORD, Location
from ternmq.storage.files.disk import Disk
from ternmq.storage.files.log_mark import LogMark
from ternmq.storage.log import recovery
from ternmq.storage.log.append import Append
from ternmq.storage.log.epoch_history import redo_cut
from ternmq.storage.log.leader_epochs import Epochs
from ternmq.storage.log.recovery_report import RecoveryReport
from ternmq.storage.log.segmented_log import SegmentedLog
from ternmq.storage.messages.message_log import Derived, MessageLog
from ternmq.storage.messages.producers import ProducerTable

log = get_logger()

SEGMENT_SIZE_MAX = 256 * MIB  # Space comes back a segment at a time.


@dataclass(slots=True)
class TopicCounts:
    """How many delayed messages each topic ever had: `storage.message_log.Sequences`."""

    ends: dict[int, int] = field(default_factory=dict)

    def commit(self, appends: list[Append], ends: dict[int, int], rolls: list[int]) -> bytes:
        self.ends.update(ends)
        return b""  # There is no index of messages: they leave soon.

    def at_least(self, ends: dict[int, int]) -> None:
        for topic_id, end in ends.items():
            self.ends[topic_id] = max(self.ends.get(topic_id, 0), end)


class Wal:
    """The message log of one delay server with what goes with it."""

    def __init__(
        self,
        source: SegmentedLog,
        counts: TopicCounts,
        producers: ProducerTable,
        *,
        clock: Clock,
        config: StorageConfig,
        producers_to: int,
        safe_offset: int | None,
    ) -> None:
        """Use `open_wal`."""
        self.producers_to = producers_to
        """What the producers file covers."""
        self.source = source
        self.counts = counts
        self.producers = producers
        self.messages = MessageLog(
            source,
            Derived(counts, producers),
            clock=clock,
            epoch=1,
            config=config,
            safe_offset=safe_offset,
        )

    def forget_before(self, offset: int) -> int:
        """Remove segments that end at or before `offset`; blocks."""
        return self.source.drop_before(offset)

    def read(self, offset: int, size_max: int, safe: int) -> bytes:
        """Whole batches from `offset` on that end at or before `safe`, about `size_max` bytes;
        blocks."""
        end = min(safe, offset + size_max + STORED_SIZE_MAX)
        base = self.source.base_of(offset)
        later = [start for start in self.source.bases if start > base]
        end = min(end, later[0]) if later else end
        data = self.source.read(offset, end - offset)
        if end < safe and not (later and end == later[0]):
            data = data[: _whole(data, size_max)]
        return data


def _whole(data: bytes, size_max: int) -> int:
    """How much of `data` is whole batches, the last of which starts below `size_max`."""
    form, at, view = MessageFormat(), 0, memoryview(data)
    while at < size_max and at < len(data):
        try:
            size = form.size(view[at:])
        except Corrupt:
            break
        if at + size > len(data):
            break
        at += size
    return at or len(data)


@dataclass(frozen=True, slots=True)
class WalMarks:
    """What is known about the log before it is read."""

    known: DelayCheckpoint
    epochs: Epochs
    suffix: bool
    """Not everything that is written is safe."""
    derived: int
    """The last batch that lies in schedule logs."""


def open_wal(
    disk: Disk,
    paths: DelayPaths,
    *,
    clock: Clock,
    marks: WalMarks,
    config: StorageConfig,
    report: RecoveryReport,
) -> Wal:
    """Open and recover; what is behind the checkpoint or the producers' snapshot is read."""
    mark = LogMark(disk, paths.wal_mark)
    source = SegmentedLog(
        disk, paths.wal, segment_size=config.segment_size, room=disk.room, mark=mark
    )
    known, durable = marks.known, marks.known.wal_durable
    redo_cut(source, marks.epochs.message_cut)
    producers = ProducerTable()
    covered = _load_producers(disk, paths, producers, report)
    start = max(source.start, min(covered, durable))
    start = start if start <= source.end else source.active_base
    recovery.keep_short_segments(source, start, paths.for_recovery(), report)
    collector = Collector(source.read)
    derived_to = acknowledged = 0

    def visit(offset: int, data: memoryview, problem: Corrupt | None) -> None:
        nonlocal derived_to, acknowledged
        collector.visit(offset, data, problem)
        if problem is None:  # A master writes the next round when the one before counts.
            acknowledged = max(acknowledged, read_stamp(data).durable_to)
        if offset == marks.derived and problem is None:
            derived_to = offset + len(data)

    found = recovery.scan(
        source,
        start=start,
        durable=max(durable, mark.synced),
        visit=visit,
        form=recovery.OwnMarks(MessageFormat(), marks.epochs.messages.is_own),
    )
    verdict = recovery.decide(found)
    recovery.repair(source, found, verdict, paths.for_recovery(), report)
    safe = source.end
    if marks.suffix:
        source.cut(source.end)  # Nothing that was cut in vain comes back after a power cut.
        safe = min(max(durable, known.scheduled, covered, derived_to, source.start), source.end)
    counts = TopicCounts()
    counts.at_least({topic.id: topic.accepted for topic in known.topics})
    stored_at_ms = known.stored_at_ms
    records = bytearray()
    for fields in RECORD.iter_unpack(collector.records):
        if fields[2] >= min(verdict.end, safe):
            break
        records += RECORD.pack(*fields)
        counts.at_least({fields[0]: fields[1] + fields[4]})
        stored_at_ms = max(stored_at_ms, fields[5])
        if fields[8] == Location.LOST:
            log.error("delayed messages lost to a damaged log", topic_id=fields[0], rows=fields[4])
    producers.restore_records(records, from_offset=covered)
    wal = Wal(
        source,
        counts,
        producers,
        clock=clock,
        config=config,
        producers_to=covered,
        safe_offset=safe,
    )
    wal.messages.not_before(stored_at_ms)
    wal.messages.prove(acknowledged)
    return wal


def _load_producers(
    disk: Disk, paths: DelayPaths, producers: ProducerTable, report: RecoveryReport
) -> int:
    if not disk.exists(paths.producers):
        return 0
    try:
        return producers.restore(disk.read(paths.producers))
    except Corrupt as error:
        log.error("the producers file is bad; what is in the log is read", error=error.message)
        report.notes.append(error.message)
        return 0
