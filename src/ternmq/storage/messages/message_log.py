"""The message log: every batch of every topic, in the order of arrival.

A group of appends goes through three steps. `stage` (loop, memory only) gives each batch its
offset, its sequence and its time and stamps them into its header. `write` (writer thread, blocks)
puts the group on disk with one write and one fdatasync. `commit` (loop) makes it visible: consume
entries, producer windows, the index, `safe_offset`. `abandon` instead forgets it as if it had
never been. One group is in flight at a time, so sequences have no gaps.

Safe means synced with flush=sync and handed to the operating system with flush=async, here and, in
a broker group with replicas, on every member that is in sync; a master commits that late.
`durable_to` in a stamp always means synced. Reads are checked against the batch's own checksum, and
nothing at or above `safe_offset` can be read.

A replica does not stage: `receive` (loop) checks bytes of the master and gathers them, `take`
(loop) hands the group to `write`, and `advance` (loop) makes visible what the master says is safe.
What is written and not safe is the suffix, see `suffix`.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec
from crc32c import crc32c

from ternmq.batch.encoder import Origin
from ternmq.batch.half import CONTROL_TOPIC, NO_SEQUENCE, HalfDecision, PlacedHalf, pack_decision
from ternmq.batch.layout import (
    COUNT,
    FIXED_SIZE,
    FRAMING,
    STAMP,
    STAMP_END,
    STAMP_START,
)
from ternmq.core.clock import Clock
from ternmq.core.errors import Corrupt, DiskFull, TernError
from ternmq.core.ids import ProducerId
from ternmq.core.units import MIB
from ternmq.metrics.histogram import Histogram
from ternmq.metrics.samples import Samples
from ternmq.storage.config import StorageConfig
from ternmq.storage.consume.batch_scan import Collector, MessageFormat
from ternmq.storage.consume.entry import RECORD, WITHOUT_SEQUENCE
from ternmq.storage.files.disk import Buffer
from ternmq.storage.index.index import MessageIndex
from ternmq.storage.log import recovery
from ternmq.storage.log.append import Append, Ending, StagedBatches
from ternmq.storage.log.replica_input import LogRecord
from ternmq.storage.log.replicated_log import ReplicatedLog
from ternmq.storage.log.segmented_log import SegmentedLog
from ternmq.storage.log.write_plan import WritePlan
from ternmq.storage.messages.producers import ProducerTable, StoredBatch
from ternmq.storage.messages.suffix import Suffix, ends_of
from ternmq.storage.messages.transactions import TransactionTable

__all__ = ["Append", "MessageLog", "StagedBatches"]

FREE_CHECK_SECONDS = 1.0
FREE_CHECK_BYTES = 64 * MIB

_OFFSET = struct.Struct("<Q")
_pack_stamp = STAMP.pack


class Sequences(Protocol):
    """Counts the rows of each topic: a broker's consume log, or the counts of a delay server."""

    ends: dict[int, int]

    def commit(self, appends: list[Append], ends: dict[int, int], rolls: list[int]) -> Buffer:
        """These batches are safe; `rolls` is where new segments began. Returns their packed
        consume records, for the index."""


@dataclass(frozen=True, slots=True)
class Derived:
    """What grows with the log and can be made again from it. A log that is not a broker's has no
    index and no transactions."""

    consume: Sequences
    producers: ProducerTable
    index: MessageIndex | None = None
    halves: TransactionTable | None = None


OnCorrupt = Callable[[Corrupt], TernError]
"""Says what to raise where bytes that were safe do not match their checksum; on any thread."""


def _as_it_is(error: Corrupt) -> TernError:
    return error


class MessageLog(ReplicatedLog[StagedBatches]):
    """Appends and reads batches."""

    def __init__(
        self,
        source: SegmentedLog,
        derived: Derived,
        *,
        clock: Clock,
        epoch: int,
        config: StorageConfig,
        safe_offset: int | None = None,
        on_corrupt: OnCorrupt | None = None,
    ) -> None:
        """Without `safe_offset` everything in the log is safe."""
        super().__init__(source, MessageFormat(), safe_offset)
        self._consume, self._producers = derived.consume, derived.producers
        self._index, self._halves = derived.index, derived.halves
        self._clock = clock
        self.epoch = epoch
        self._config = config
        self._sync_each = config.flush == "sync"
        self.stored_at_ms = 0  # Of the last batch; the next one's is never less.
        self._suffix = Suffix(source)
        self._synced_at = clock.monotonic()
        self.append_seconds, self.sync_seconds = Histogram(), Histogram()  # Of the writer thread.
        self._free_checked_at = float("-inf")
        self._free_known_to = source.end
        self._on_corrupt = on_corrupt or _as_it_is

    @property
    def idle(self) -> bool:
        """No group is on its way to the disk."""
        return self._in_flight is None

    def not_before(self, stored_at_ms: int) -> None:
        """Batches from now on are stored at this moment or later, whatever the clock says."""
        self.stored_at_ms = max(self.stored_at_ms, stored_at_ms)

    # Appending

    def stage(self, appends: list[Append]) -> StagedBatches:
        """Give every batch its place; memory only. Raises `DiskFailed` once the log has failed."""
        plan = self._plan()
        assert self.safe_offset == plan.end, "the suffix has to be safe first"
        place = plan.place
        ends: dict[int, int] = {}
        safe_ends = self._consume.ends
        stored_at_ms = max(self.stored_at_ms, self._clock.now_ms())
        durable_to, epoch = self._log.synced, self.epoch
        for append in appends:
            topic_id = append.topic_id
            if append.special is None:
                sequence = ends.get(topic_id)
                if sequence is None:
                    sequence = safe_ends.get(topic_id, 0)
                ends[topic_id] = sequence + append.count
            else:
                sequence = NO_SEQUENCE
                if isinstance(append.special, Ending):
                    self._decide(append, append.special, ends, stored_at_ms)
            batch = append.batch
            assert len(batch) % 8 == 0
            append.offset = offset = place(batch)
            append.base_sequence = sequence
            append.stored_at_ms = stored_at_ms
            stamp = _pack_stamp(
                offset,
                topic_id,
                sequence,
                epoch,
                stored_at_ms,
                append.received_at_ms,
                durable_to,
                append.client_ip,
                append.server_ip,
                append.client_port,
                append.server_port,
            )
            crc = crc32c(stamp, crc32c(batch[:12]))
            batch[12:STAMP_END] = crc.to_bytes(4, "little") + stamp
        self._in_flight = staged = StagedBatches(
            appends=appends, plan=plan, ends=ends, stored_at_ms=stored_at_ms
        )
        return staged

    def _decide(
        self, append: Append, ending: Ending, ends: dict[int, int], stored_at_ms: int
    ) -> None:
        """Give what is committed its sequences and make the control batch that says so."""
        placed: list[PlacedHalf] = []
        for half in ending.halves:
            sequence = ends.get(half.topic_id, self._consume.ends.get(half.topic_id, 0))
            ends[half.topic_id] = sequence + half.count
            placed.append(msgspec.structs.replace(half, sequence=sequence))
        ending.decision = HalfDecision(
            kind=ending.kind, transactions=ending.transactions, placed=placed
        )
        origin = Origin(topic=CONTROL_TOPIC, app=CONTROL_TOPIC, producer=ProducerId(0, 0))
        append.batch = pack_decision(ending.decision, origin=origin, number=0, at_ms=stored_at_ms)

    def write(self, staged: StagedBatches) -> None:
        """Put the group on disk; blocks. When this raises, none of it is there (or it is said to
        be unknown: `failed` is set, and a restart may find it)."""
        assert self._in_flight is staged
        self._write(staged.plan, sync=self._sync_each)
        staged.written = True

    def _write(self, plan: WritePlan, *, sync: bool) -> None:
        self._check_free(plan.end)
        began = self._clock.monotonic()
        self._log.write(plan, sync=False)
        if sync:
            self.sync()
        else:
            self.sync_due()
        self.append_seconds.observe(self._clock.monotonic() - began)

    def commit(self, staged: StagedBatches) -> None:
        """The written group is safe: make it visible."""
        self._landed(staged)
        self._derive(staged.appends, staged.ends, staged.plan.rolls, staged.plan.end)
        self.stored_at_ms = staged.stored_at_ms

    def _derive(
        self, appends: list[Append], ends: dict[int, int], rolls: list[int], end: int
    ) -> None:
        remember = self._producers.remember
        for append in appends:
            if append.special is not None:
                assert self._halves is not None, "only a broker's log has transactions"
                self._halves.apply(append)
                continue
            remember(
                append.producer,
                append.first_sequence,
                append.count,
                StoredBatch(append.topic_id, append.base_sequence, append.stored_at_ms),
                append.batch,
            )
        records = self._consume.commit(appends, ends, rolls)
        if self._index is not None:
            self._index.add(appends, bytes(records), end)
        self.safe_offset = end

    def sync(self) -> None:
        """Put everything written on disk; blocks. An error is final."""
        self._synced_at = self._clock.monotonic()
        needed = self._log.synced < self._log.end
        self._log.sync()
        if needed:
            self.sync_seconds.observe(self._clock.monotonic() - self._synced_at)

    def sync_due(self) -> None:
        """flush=async: sync if enough bytes or enough time have gathered. Called by a timer too."""
        unsynced = self._log.end - self._log.synced
        waited_ms = (self._clock.monotonic() - self._synced_at) * 1000
        if unsynced >= self._config.flush_bytes or (
            unsynced and waited_ms >= self._config.flush_interval_ms
        ):
            self.sync()

    def _check_free(self, end: int) -> None:
        """Keep a reserve of space, so that consuming and acking survive a full disk.

        Looked at every second, and before as much is written as was free beyond the reserve.
        """
        now = self._clock.monotonic()
        if end <= self._free_known_to and now - self._free_checked_at < FREE_CHECK_SECONDS:
            return
        self._free_checked_at = now
        free, size = self._log.disk.free(self._log.directory)
        reserved = self.reserved(size)
        spare = free - reserved
        self._free_known_to = self._log.end + min(spare, FREE_CHECK_BYTES)
        if spare < end - self._log.end:
            raise DiskFull(
                f"{free} bytes free where messages are kept, {reserved} are reserved: free some "
                "space, lower disk_free_min or raise disk_full_percent; consuming goes on",
                free=free,
                min_free=reserved,
            )

    def reserved(self, disk_size: int) -> int:
        """How many bytes of a disk of this size are not for messages."""
        beyond = disk_size * max(0, 100 - self._config.full_percent) // 100
        return max(self._config.min_free, beyond)

    # Replication

    def _hold(self, records: list[LogRecord]) -> None:
        self._suffix.hold(records)

    def _let_go(self, end: int) -> None:
        self._suffix.cut(end)

    def advance(self, to: int) -> list[Append]:
        """Make visible what is written below `to`, at most a piece of it; returns that. To be
        called until it returns nothing. Raises `Corrupt` where the suffix is damaged."""
        assert self._in_flight is None, "a staged group is committed"
        appends = self._suffix.next(self.safe_offset, min(to, self._log.end))
        if not appends:
            return appends
        end = appends[-1].offset + len(appends[-1].batch)
        rolls = [base for base in self._log.bases if self.safe_offset <= base < end]
        self._derive(appends, ends_of(appends, self._consume.ends), rolls, end)
        self.stored_at_ms = max(self.stored_at_ms, appends[-1].stored_at_ms)
        if self._halves is not None:
            self._halves.tidy()
        return appends

    def rows_from(self, offset: int) -> dict[int, tuple[int, int]]:
        """Topic id to first sequence and number of the rows that are written from here on; blocks.
        A master that lacks these bytes lacks those rows."""
        collector = Collector(self._log.read)
        recovery.scan(
            self._log, start=offset, durable=0, form=MessageFormat(), visit=collector.visit
        )
        found: dict[int, tuple[int, int]] = {}
        for fields in RECORD.iter_unpack(collector.records):
            if fields[8] not in WITHOUT_SEQUENCE:
                first, rows = found.get(fields[0], (fields[1], 0))
                found[fields[0]] = first, rows + fields[4]
        return found

    def cut(self, to: int) -> None:
        assert to >= self.safe_offset
        super().cut(to)

    # Reading

    def read(self, offset: int, size: int) -> bytes:
        """One or more whole batches as stored; may wait for the disk. Raises `Corrupt`."""
        if size <= 0:
            raise _bad(offset, size)  # Rows without bytes: they are lost.
        assert offset + size <= self.safe_offset, "not safe yet"
        data = self._log.read(offset, size)
        try:
            check_batches(data, offset)
        except Corrupt as error:
            raise self._on_corrupt(error) from error
        return data

    def read_nowait(self, offset: int, size: int) -> bytearray | None:
        """Read if the page cache has all of it, else None at once."""
        if size <= 0:
            raise _bad(offset, size)
        assert offset + size <= self.safe_offset, "not safe yet"
        data = self._log.read_nowait(offset, size)
        try:
            check_batches(data or b"", offset)
        except Corrupt as error:
            if self._on_corrupt(error) is error:
                raise
            return None  # Whoever may wait is told.
        return data


def check_batches(data: bytes | bytearray, offset: int) -> None:
    """Raise `Corrupt` unless `data` is whole batches that belong at `offset`."""
    view = memoryview(data)
    at, end = 0, len(data)
    while at < end:
        if end - at < FIXED_SIZE:
            raise _bad(offset + at, end - at)
        _, _, _, size, stamp_crc = FRAMING.unpack_from(view, at)
        stamp_at, body_at = at + STAMP_START, at + STAMP_END
        (held,) = _OFFSET.unpack_from(view, stamp_at)
        (crc,) = COUNT.unpack_from(view, body_at)
        if (
            held != offset + at
            or not FIXED_SIZE <= size <= end - at
            or stamp_crc != crc32c(view[stamp_at:body_at], crc32c(view[at : at + 12]))
            or crc != crc32c(view[body_at + 4 : at + size])
        ):
            raise _bad(offset + at, end - at)
        at += size


def _bad(offset: int, size: int) -> Corrupt:
    return Corrupt(
        f"the stored batch at offset {offset} does not match its checksum; "
        "see store.report and the quarantine folder",
        offset=offset,
        size=size,
    )


def log_figures(out: Samples, role: str, messages: MessageLog) -> None:
    """For Prometheus: the size of the log, and how long writing and syncing it takes."""
    out.add("tern_server_log_bytes", messages.safe_offset - messages.start_offset, role)
    out.histogram("tern_server_append_seconds", messages.append_seconds, role)
    out.histogram("tern_server_sync_seconds", messages.sync_seconds, role)
