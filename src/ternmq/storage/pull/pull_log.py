"""The pull log: what groups were given, what they acked, what was decided.

Progress (hand-outs, acks) may be lost at its tail: rows then come again. Decisions are written
with `sync=True` before anybody is told. Snapshots of groups are records of this very log, so none
can be stale: a group's state is its latest snapshot plus the records after it. Segments before the
oldest record that any living group needs are removed, except the newest `keep` bytes, which stay
for the archive and the trace.

Like the message log: `stage` in memory, `write` on the writer thread, `commit` or `abandon` in
memory, one group in flight at a time. `replay` must run once, to its end, before the first `trim`;
on a replica, where nobody replays, `take_stock` takes its place.

In a broker group with replicas `commit(safe=False)` lets the next group be staged while members are
still getting this one; `advance` follows when they have it. A replica receives as the message log
does. Replay gives everything that is written; which records are needed, and so what may be trimmed,
counts only what is safe: the rest may still be cut off.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ternmq.core.clock import Clock
from ternmq.core.errors import Corrupt
from ternmq.core.log import get_logger
from ternmq.storage.log.recovery import Gap, Visit, scan
from ternmq.storage.log.replica_input import LogRecord
from ternmq.storage.log.replicated_log import ReplicatedLog
from ternmq.storage.log.segmented_log import SegmentedLog
from ternmq.storage.log.write_plan import WritePlan
from ternmq.storage.pull.page import PullPage, PullRow, kept_since_ms, position_at, read_page
from ternmq.storage.pull.record import (
    FIELDS,
    FRAME,
    HEADER_SIZE,
    PullFormat,
    PullKind,
    PullRecord,
    cut_record,
    decode,
    encode,
    encoded_size,
)

FOLLOWING_MAX = 10_000
ROTTEN_MAX = 1_000

log = get_logger()

__all__ = ["PullKind", "PullLog", "PullRecord", "StagedPulls", "Survey", "cut_record"]


@dataclass(slots=True, kw_only=True)
class StagedPulls:
    """A group of records with offsets."""

    records: list[PullRecord]
    offsets: list[int]
    plan: WritePlan
    written: bool = False


class Needed(NamedTuple):
    """A record that says from where on a group is needed."""

    offset: int
    kind: int
    group_id: int
    lane_id: int


@dataclass(slots=True, kw_only=True)
class Survey:
    """What a start found in the log."""

    records: list[tuple[int, PullRecord]] = field(default_factory=list)
    group_ids: set[int] = field(default_factory=set)
    lane_ids: set[int] = field(default_factory=set)


Damaged = Callable[[list[Gap], list[int]], None]
"""Told of bytes that cannot be read, and of groups that have records but none that makes them."""


class PullLog(ReplicatedLog[StagedPulls]):
    """Appends and replays pull records."""

    def __init__(
        self,
        source: SegmentedLog,
        *,
        clock: Clock,
        flush_interval_ms: int,
        keep: int = 0,
        replay_from: int,
        damaged: Damaged,
        safe_offset: int | None = None,
    ) -> None:
        """Without `safe_offset` everything in the log is safe."""
        super().__init__(source, PullFormat(), safe_offset)
        self._clock = clock
        self._flush_interval_ms = flush_interval_ms
        self._keep = keep
        self._replay_from = replay_from
        self._damaged = damaged
        self._survey: Survey | None = None
        self._counted = False  # Is all of `_needed` known?
        self._synced_at = clock.monotonic()
        self._needed: dict[int, dict[int, int]] = {}
        self._waiting: deque[Needed] = deque()  # Of the suffix.
        self._following: dict[int, None] = {}
        """Where pages ended that were read lately: there a record begins."""
        self.rotten: dict[int, int] = {}
        """Bytes that a reader found damaged in this life of the server: from, to."""

    # Appending

    def stage(self, records: list[PullRecord]) -> StagedPulls:
        """Give records their offsets; memory only."""
        plan = self._plan()
        durable_to = self._log.synced
        offsets: list[int] = []
        for record in records:
            size = encoded_size(record)
            offset = plan.room(size)
            plan.place(encode(record, offset=offset, durable_to=durable_to))
            offsets.append(offset)
        self._in_flight = StagedPulls(records=records, offsets=offsets, plan=plan)
        return self._in_flight

    def write(self, staged: StagedPulls, sync: bool) -> None:
        """Put the records on disk; blocks. `sync` for decisions. Raises `DiskFull` (nothing is
        written, the next may work) or `DiskFailed`."""
        assert self._in_flight is staged
        self._log.write(staged.plan, sync=sync)
        if sync:
            self._synced_at = self._clock.monotonic()
        staged.written = True

    def commit(self, staged: StagedPulls, *, safe: bool = True) -> None:
        """With `safe=False` it is only written: `advance` says when the members have it."""
        self._landed(staged)
        self._survey = None  # No longer all there is.
        for offset, record in zip(staged.offsets, staged.records, strict=True):
            if record.kind in _TELLING:
                needed = Needed(offset, record.kind, record.group_id, record.lane_id)
                self._waiting.append(needed)
        if safe:
            self.advance(staged.plan.end)

    def sync(self) -> None:
        self._synced_at = self._clock.monotonic()
        self._log.sync()

    def sync_due(self) -> None:
        """Flush progress records that have waited long enough. Called by a timer."""
        if self._log.synced < self._log.end:
            waited_ms = (self._clock.monotonic() - self._synced_at) * 1000
            if waited_ms >= self._flush_interval_ms:
                self.sync()

    # Replication

    def _hold(self, records: list[LogRecord]) -> None:
        self._waiting += _telling(records)

    def _write(self, plan: WritePlan, *, sync: bool) -> None:
        self._survey = None
        super()._write(plan, sync=sync)

    def _let_go(self, end: int) -> None:
        while self._waiting and self._waiting[-1].offset >= end:
            self._waiting.pop()

    def advance(self, to: int) -> None:
        """What is written below `to` is safe."""
        to = min(to, self._log.end)
        while self._waiting and self._waiting[0].offset < to:
            self._note(self._waiting.popleft())
        self.safe_offset = max(self.safe_offset, to)

    def cut(self, to: int) -> None:
        assert to >= self.safe_offset
        self._survey = None
        super().cut(to)

    def take_stock(self) -> None:
        """Find out what groups need without replaying them; blocks."""
        gaps: list[Gap] = []

        def visit(offset: int, data: memoryview, problem: Corrupt | None) -> None:
            if problem is None:
                self._waiting += _telling([(offset, data)])

        gaps = self._scan(visit)
        self._counted = True
        self.advance(self.safe_offset)
        if gaps:
            self._damaged(gaps, [])

    # Reading

    def replay(self) -> Iterator[tuple[int, PullRecord]]:
        """Every record that may still matter, in order, with its offset.

        Bytes that do not check are passed over and handed to `damaged`.
        """
        if self._survey is None:
            self.survey()
        assert self._survey is not None
        survey, self._survey = self._survey, None  # Read once: the groups have it from here on.
        yield from survey.records

    def safe_records(self) -> list[tuple[int, PullRecord]]:
        """Records for a look from outside, as far as it is safe: nothing is counted by it, and
        nobody is told of damage. Blocks; beside the writer."""
        safe = self.safe_offset
        found: list[tuple[int, PullRecord]] = []

        def visit(offset: int, data: memoryview, problem: Corrupt | None) -> None:
            if problem is None and offset < safe:
                found.append((offset, decode(data)))

        self._scan(visit)
        return found

    def survey(self) -> "Survey":
        """Read what `replay` will give, and say which ids are in it. Blocks."""
        found = Survey()

        def visit(offset: int, data: memoryview, problem: Corrupt | None) -> None:
            if problem is None:
                found.records.append((offset, decode(data)))
                if not self._counted:
                    self._waiting += _telling([(offset, data)])

        gaps = self._scan(visit)
        self._counted = True
        self.advance(self.safe_offset)
        known: set[int] = set()
        for _, record in found.records:
            found.group_ids.add(record.group_id)
            found.lane_ids.add(record.lane_id)
            if record.kind in (PullKind.GROUP_MADE, PullKind.SNAPSHOT, PullKind.GROUP_DELETED):
                known.add(record.group_id)
        if gaps:
            self._damaged(gaps, sorted(found.group_ids - known))
        self._survey = found
        return found

    def _scan(self, visit: Visit) -> list[Gap]:
        """Everything from the oldest record that is needed to the end; returns what is damaged."""
        gaps: list[Gap] = []
        first = self.replay_from()
        for number, base in enumerate(self._log.bases):
            if self._log.segment_end(number) <= first and number + 1 < len(self._log.bases):
                continue
            gaps += scan(
                self._log,
                start=max(base, first),
                durable=0,
                form=PullFormat(),
                visit=visit,
                segment=number,
            ).gaps
        return gaps

    def bounds(self) -> tuple[int, int]:
        """Where the log begins and where its safe part ends."""
        return self._log.start, min(self._log.synced, self.safe_offset)

    def page(self, position: int, end: int, size_max: int, row: PullRow | None = None) -> PullPage:
        """Records for archive and trace; with a row only what touches it. Blocks."""
        page = read_page(self._log, position, end, size_max, safe=self.bounds()[1], row=row)
        believed = position in self._following or position in (0, *self._log.bases)
        while len(self._following) >= FOLLOWING_MAX:
            self._following.pop(next(iter(self._following)), None)
        self._following[page.following] = None
        for start, stop in page.damaged:
            if start == position and not believed:
                continue  # Whoever asked made it up, and it lies within a record.
            if self.rotten.get(start, 0) < stop and len(self.rotten) < ROTTEN_MAX:
                self.rotten[start] = stop
                log.error("delivery records are damaged; passed over", start=start, end=stop)
        return page

    def position_at(self, since_ms: int) -> int:
        """Where to begin to look for what happened since; blocks."""
        return position_at(self._log, since_ms)

    def kept_since_ms(self) -> int:
        """From when on everything is kept; 0: from the beginning. Blocks."""
        return kept_since_ms(self._log)

    def read(self, offset: int) -> PullRecord:
        """One record; blocks. Raises `Corrupt` where it is not, or no longer, there."""
        form = PullFormat()
        size = form.size(memoryview(self._log.read(offset, HEADER_SIZE)))
        data = memoryview(self._log.read(offset, size))
        form.check(data, offset)
        return decode(data)

    # Which segments are needed

    def replay_from(self) -> int:
        """Where the next replay may start: the oldest record that a living group needs."""
        if not self._counted:
            return self._replay_from
        safe = self.safe_offset  # Read first: the loop may let more count while this looks.
        needed = [
            offset for lanes in list(self._needed.values()) for offset in list(lanes.values())
        ]
        return min(needed, default=safe)

    def pinning(self, count_max: int) -> list[tuple[int, int]]:
        """(group id, lane id) of those that need the oldest sealed segments: a new snapshot of
        each lets them go."""
        before = self._log.active_base
        held = [
            (offset, group_id, lane_id)
            for group_id, lanes in self._needed.items()
            for lane_id, offset in lanes.items()
            if offset < before
        ]
        return [(group_id, lane_id) for _, group_id, lane_id in sorted(held)[:count_max]]

    def trim(self) -> int:
        """Remove segments that no group needs; return how many. Blocks."""
        if not self._counted or self._log.failed is not None:
            return 0
        kept_for_readers = self._log.end - self._keep
        return self._log.drop_before(min(self.replay_from(), self.bounds()[1], kept_for_readers))

    def _note(self, needed: Needed) -> None:
        if needed.kind == PullKind.GROUP_DELETED:
            self._needed.pop(needed.group_id, None)
        else:
            self._needed.setdefault(needed.group_id, {})[needed.lane_id] = needed.offset


# Nothing else: late records of a deleted group would hold their segment for ever.
_TELLING = (int(PullKind.GROUP_MADE), int(PullKind.SNAPSHOT), int(PullKind.GROUP_DELETED))


def _telling(records: list[LogRecord]) -> list[Needed]:
    found: list[Needed] = []
    for offset, data in records:
        fields = FIELDS.unpack_from(data, FRAME.size)
        if fields[1] in _TELLING:
            found.append(Needed(offset, fields[1], fields[6], fields[7]))
    return found
