"""The decisions journal: one log of what was decided about rows, safe before anybody acts on it.

The synced record is the point of decision, on every member that is in sync. The dispatch logs of
the hours are derived from it: only from what is safe and on disk (`derivable`), so that they are
the same on every member and nothing in them is ever taken back.

Steps as in the pull log: `stage` (loop, memory only), `write` (one thread, blocks), `commit` or
`abandon` (loop). One group is written at a time; the next may be staged while members are still
getting the last one. `advance` says what counts. A replica receives as the message log does.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ternmq.core.errors import Corrupt, TernError
from ternmq.core.units import MIB
from ternmq.delay.formats.decision import HEADER as DISPATCH
from ternmq.delay.formats.decision import Decision, DecisionKind
from ternmq.delay.formats.journal_record import HEADER, JournalFormat, Noted, pack, parse
from ternmq.delay.store.hour_files import HourFiles
from ternmq.storage.log.replicated_log import ReplicatedLog
from ternmq.storage.log.segmented_log import SegmentedLog
from ternmq.storage.log.write_plan import WritePlan

SEGMENT_SIZE = 32 * MIB
READ_SIZE = 4 * MIB
NOT_FOR_HOURS = (DecisionKind.GONE, DecisionKind.BEGUN)


@dataclass(slots=True)
class Deciding:
    """A decision on its way to the disk; `error` says why it did not get there."""

    hour: int
    decision: Decision
    error: TernError | None = None


@dataclass(slots=True)
class StagedDecisions:
    """A group of decisions with their places."""

    items: list[Deciding]
    plan: WritePlan
    places: dict[int, int]
    """Where hours went on before."""
    sync: bool
    written: bool = False


class Journal(ReplicatedLog[StagedDecisions]):
    """Appends decisions, gives back what is safe."""

    def __init__(
        self, source: SegmentedLog, files: HourFiles, *, safe_offset: int | None = None
    ) -> None:
        """Without `safe_offset` everything in the log is safe."""
        super().__init__(source, JournalFormat(), safe_offset)
        self._files = files
        self._places: dict[int, int] = {}
        """Where the next record of an hour goes, of hours about which was decided here."""

    @property
    def derivable(self) -> int:
        """Everything below is safe, and no power cut takes it away here."""
        return min(self.safe_offset, self._log.synced)

    # Appending

    def stage(self, items: list[Deciding], *, scheduled: int, sync: bool) -> StagedDecisions:
        """Give decisions their places; memory only. `done` alone need not be synced: losing it
        costs one repeat, which the broker recognises."""
        plan, durable_to, places = self._plan(), self._log.synced, self._places
        before: dict[int, int] = {}
        for item in items:
            hour, decision = item.hour, item.decision
            place = places.get(hour)
            if place is None:
                place = self._files.ends.get(hour, 0)
            before.setdefault(hour, place)
            # The size is known only when it is packed, and its offset does not depend on it.
            record = pack(
                decision,
                hour=hour,
                place=place,
                offset=plan.end,
                durable_to=durable_to,
                scheduled=scheduled,
            )
            plan.place(record)
            decision.offset = place
            sync |= decision.kind is not DecisionKind.DONE
            if decision.kind not in NOT_FOR_HOURS:
                places[hour] = place + len(record) - HEADER.size
        self._in_flight = StagedDecisions(items, plan, before, sync)
        return self._in_flight

    def write(self, staged: StagedDecisions) -> None:
        """Put the records on disk; blocks. When this raises, none of them is there."""
        assert self._in_flight is staged
        self._log.write(staged.plan, sync=staged.sync)
        staged.written = True

    def commit(self, staged: StagedDecisions, *, safe: bool = True) -> None:
        """With `safe=False` it is only written: `advance` says when the members have it."""
        self._landed(staged)
        if safe:
            self.advance(staged.plan.end)

    def abandon(self, staged: StagedDecisions) -> None:
        super().abandon(staged)
        self._places.update(staged.places)

    def sync(self) -> None:
        self._log.sync()

    def look(self) -> None:
        """Notice that the file was removed under us; any thread."""
        self._log.look()

    # Replication

    def advance(self, to: int) -> None:
        """What is written below `to` is safe."""
        self.safe_offset = max(self.safe_offset, min(to, self._log.end))

    def cut(self, to: int) -> None:
        self._places.clear()
        super().cut(to)
        self.safe_offset = min(self.safe_offset, to)

    # Reading

    def records(self, offset: int, end: int) -> Iterator[Noted]:
        """Checked records from `offset` on, some megabytes; any thread. Raises `Corrupt`."""
        form = JournalFormat()
        view = memoryview(self._log.read_some(offset, min(READ_SIZE, end - offset)))
        if len(view) >= HEADER.size and form.size(view) > len(view):
            view = memoryview(self._log.read(offset, form.size(view)))
        at = 0
        while len(view) - at >= HEADER.size + DISPATCH.size:
            size = form.size(view[at:])
            if at + size > len(view):
                return
            form.check(view[at : at + size], offset + at)
            yield parse(view[at : at + size])
            at += size
        if at == 0:
            raise Corrupt(f"the journal at offset {offset} has no whole record before {end}")

    def forget_before(self, offset: int) -> int:
        """Remove segments that end at or before `offset`; blocks."""
        return 0 if self._log.failed is not None else self._log.drop_before(offset)

    def close(self) -> None:
        self._log.close()
