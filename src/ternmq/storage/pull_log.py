"""The pull log: what groups were given, what they acked, what was decided.

Progress (hand-outs, acks) may be lost at its tail: rows then come again. Decisions are written
with `sync=True` before anybody is told. Snapshots of groups are records of this very log, so none
can be stale: a group's state is its latest snapshot plus the records after it. Segments before the
oldest record that any living group needs are removed, except the newest `keep` bytes, which stay
for the archive and the trace.

Like the message log: `stage` in memory, `write` on the writer thread, `commit` or `abandon` in
memory, one group in flight at a time. `replay` must run once, to its end, before the first `trim`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ternmq.core.clock import Clock
from ternmq.core.errors import Corrupt, TernError
from ternmq.storage.pull_page import PullPage, read_page
from ternmq.storage.pull_record import (
    HEADER_SIZE,
    Kind,
    PullFormat,
    PullRecord,
    cut_record,
    decode,
    encode,
    encoded_size,
)
from ternmq.storage.recovery import Gap, scan
from ternmq.storage.segment import Plan
from ternmq.storage.segmented_log import SegmentedLog

__all__ = ["Kind", "PullLog", "PullRecord", "StagedPulls", "Survey", "cut_record"]


@dataclass(slots=True, kw_only=True)
class StagedPulls:
    """A group of records with offsets."""

    records: list[PullRecord]
    offsets: list[int]
    plan: Plan
    written: bool = False


@dataclass(slots=True, kw_only=True)
class Survey:
    """What a start found in the log."""

    records: list[tuple[int, PullRecord]] = field(default_factory=list)
    group_ids: set[int] = field(default_factory=set)
    lane_ids: set[int] = field(default_factory=set)


Damaged = Callable[[list[Gap], list[int]], None]
"""Told of bytes that cannot be read, and of groups that have records but none that makes them."""


class PullLog:
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
    ) -> None:
        self._log = source
        self._clock = clock
        self._flush_interval_ms = flush_interval_ms
        self._keep = keep
        self._replay_from = replay_from
        self._damaged = damaged
        self._survey: Survey | None = None
        self._replayed = False
        self._in_flight: StagedPulls | None = None
        self._synced_at = clock.monotonic()
        self._needed: dict[int, dict[int, int]] = {}
        self.safe_offset = source.end

    @property
    def synced_offset(self) -> int:
        """Everything below is on disk: retention and the like may rely on it."""
        return self._log.synced

    @property
    def failed(self) -> TernError | None:
        return self._log.failed

    # Appending

    def stage(self, records: list[PullRecord]) -> StagedPulls:
        """Give records their offsets; memory only."""
        assert self._in_flight is None, "commit or abandon the group before"
        plan = self._log.plan()
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
        staged.written = True

    def commit(self, staged: StagedPulls) -> None:
        assert self._in_flight is staged
        assert staged.written
        self._survey = None  # No longer all there is.
        for offset, record in zip(staged.offsets, staged.records, strict=True):
            self._note(offset, record)
        self.safe_offset = staged.plan.end
        self._in_flight = None

    def abandon(self, staged: StagedPulls) -> None:
        assert self._in_flight is staged
        assert not staged.written, "what is written must be committed"
        self._in_flight = None

    def sync(self) -> None:
        self._synced_at = self._clock.monotonic()
        self._log.sync()

    def sync_due(self) -> None:
        """Flush progress records that have waited long enough. Called by a timer."""
        if self._log.synced < self._log.end:
            waited_ms = (self._clock.monotonic() - self._synced_at) * 1000
            if waited_ms >= self._flush_interval_ms:
                self.sync()

    # Reading

    def replay(self) -> Iterator[tuple[int, PullRecord]]:
        """Every record that may still matter, in order, with its offset.

        Bytes that do not check are passed over and handed to `damaged`.
        """
        if self._survey is None:
            self.survey()
        assert self._survey is not None
        survey, self._survey = self._survey, None  # Read once: the groups have it from here on.
        self._replayed = True
        yield from survey.records

    def survey(self) -> "Survey":
        """Read what `replay` will give, and say which ids are in it. Blocks."""
        found = Survey()
        gaps: list[Gap] = []
        form = PullFormat()

        def visit(offset: int, data: memoryview, problem: Corrupt | None) -> None:
            if problem is None:
                found.records.append((offset, decode(data)))

        for number, base in enumerate(self._log.bases):
            end = self._log.segment_end(number)
            if end <= self._replay_from and number + 1 < len(self._log.bases):
                continue
            start = max(base, self._replay_from)
            gaps += scan(
                self._log, start=start, durable=0, form=form, visit=visit, segment=number
            ).gaps
        known: set[int] = set()
        for offset, record in found.records:
            self._note(offset, record)
            found.group_ids.add(record.group_id)
            found.lane_ids.add(record.lane_id)
            if record.kind in (Kind.GROUP_MADE, Kind.SNAPSHOT, Kind.GROUP_DELETED):
                known.add(record.group_id)
        if gaps:
            self._damaged(gaps, sorted(found.group_ids - known))
        self._survey = found
        return found

    def bounds(self) -> tuple[int, int]:
        """Where the log begins and where its safe part ends."""
        return self._log.start, self._log.synced

    def page(self, position: int, end: int, size_max: int) -> PullPage:
        """Records for those who want to know what happened; blocks."""
        return read_page(self._log, position, end, size_max)

    def read(self, offset: int) -> PullRecord:
        """One record; blocks. Raises `Corrupt` where it is not, or no longer, there."""
        form = PullFormat()
        size = form.size(memoryview(self._log.read(offset, HEADER_SIZE)))
        data = memoryview(self._log.read(offset, size))
        form.check(data, offset)
        return decode(data)

    # Which segments are needed

    def note_snapshot(self, group_id: int, lane_id: int, offset: int) -> None:
        """Nothing before `offset` is needed for this group on this lane."""
        self._needed.setdefault(group_id, {})[lane_id] = offset

    def replay_from(self) -> int:
        """Where the next replay may start: the oldest record that a living group needs."""
        if not self._replayed:
            return self._replay_from
        needed = (offset for lanes in self._needed.values() for offset in lanes.values())
        return min(needed, default=self.safe_offset)

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
        if not self._replayed or self._log.failed is not None:
            return 0
        kept_for_readers = self._log.end - self._keep
        return self._log.drop_before(min(self.replay_from(), self._log.synced, kept_for_readers))

    def _note(self, offset: int, record: PullRecord) -> None:
        kind, group_id = record.kind, record.group_id
        if kind == Kind.GROUP_DELETED:
            self._needed.pop(group_id, None)
        elif kind in (Kind.GROUP_MADE, Kind.SNAPSHOT):
            # Nothing else: late records of a deleted group would hold their segment for ever.
            self._needed.setdefault(group_id, {})[record.lane_id] = offset
