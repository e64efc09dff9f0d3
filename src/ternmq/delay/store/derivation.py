"""From the two logs to the files of hours: messages to schedule logs, decisions to dispatch logs.

Both are made of the safe parts of the logs only, in the same way on every member: a decision is not
derived before the messages that it may be about are scheduled. What is derived once is never taken
back. Blocks, on the scheduling thread; never changes an `Hour`: who owns the hours (`HourOwner`) is
asked whether one is there, and is told when the journal says that one is gone.
"""

from collections.abc import Container
from typing import Protocol

from ternmq.core.errors import Corrupt, TernError
from ternmq.core.log import get_logger
from ternmq.core.units import MIB
from ternmq.delay.formats.decision import Decision, DecisionKind, DispatchFormat, decode
from ternmq.delay.formats.journal_record import Noted
from ternmq.delay.formats.paths import hour_name
from ternmq.delay.hours.decision_book import DecisionBook
from ternmq.delay.store.epochs import DelayEpochs
from ternmq.delay.store.journal import NOT_FOR_HOURS, Journal
from ternmq.delay.store.loader import Opened, unknown
from ternmq.delay.store.schedule_log import Scheduled, ScheduleLog
from ternmq.delay.store.wal import Wal
from ternmq.storage.log.leader_epochs import MESSAGES

log = get_logger()

SCHEDULE_SIZE = 8 * MIB  # Of the message log, in one step.


class HourOwner(Protocol):
    """The owner of the hours, as the scheduling thread may use it."""

    def has(self, start: int) -> bool:
        """Whether the hour has rows and is not gone."""

    def gone(self, start: int, before_ms: int) -> None:
        """The journal says so, and that no message is stored before this time any more."""


class Derivation:
    """How far the files of hours are, and the next step of them."""

    def __init__(
        self,
        opened: Opened,
        wal: Wal,
        decisions: Journal,
        epochs: DelayEpochs,
        *,
        hour_ms: int,
        replicated: bool,
    ) -> None:
        known = opened.known
        self._wal = wal
        self._decisions = decisions
        self._epochs = epochs
        self._dispatch_files = opened.dispatch_files
        self._dispatch_folder = opened.paths.dispatch
        self._replicated = replicated
        self.schedule_log = ScheduleLog(
            opened.schedule_files,
            opened.hours.values(),
            hour_ms=known.hour_ms or hour_ms,
            floor_ms=known.hour_floor,
        )
        self.undecided = opened.undecided
        """Hours of which it is not known any more what was decided, and why."""
        self.scheduled_to = max(known.scheduled, wal.messages.start_offset)
        """The message log below this lies in schedule logs."""
        self.derived_to = max(known.decided_to, decisions.start_offset)
        """The journal below this lies in dispatch logs."""
        self.begun = known.begun
        """The last epoch whose length of an hour is known."""
        self.gone_before = known.gone_before
        """Every hour that is gone ended at or before this."""
        self.failed: TernError | None = None
        """Why this member cannot go on like the others, if so."""

    # Messages

    @property
    def schedulable(self) -> int:
        """The safe message log up to where the length of an hour may be another one."""
        later = [start for number, start in self._epochs.tables()[MESSAGES] if number > self.begun]
        return min([self._wal.messages.safe_offset, *later])

    def schedule(self, near: Container[int]) -> Scheduled:
        """Put the next batches of the message log into the schedule logs; those of hours that are
        `near` are synced at once."""
        offset = self.scheduled_to
        data = self._wal.read(offset, SCHEDULE_SIZE, self.schedulable)
        done = self.schedule_log.write(data, offset, near)
        self.scheduled_to = done.upto
        if done.damaged and self._replicated:
            # The others have these rows, and number all that follow differently.
            self.failed = self.failed or Corrupt(
                f"the message log is damaged behind {offset}: this member cannot go on like "
                "the others; move its data directory aside and start it again"
            )
        return done

    def use_hours(self, hour_ms: int) -> None:
        """Hours are of this length from here on. A longer one may not begin where a shorter one
        began that is gone: its files may still be there, or not, from member to member."""
        self.schedule_log.use_hours(hour_ms, self.gone_before)

    # Decisions

    def derive(self, owner: HourOwner, touched: set[int] | None = None) -> None:
        """Put decisions that count into the dispatch logs, and note in `touched` of which hours.
        Raises; what was done then is not done again."""
        if self._decisions.failed is not None:
            return
        while self.derived_to < (end := self._decisions.derivable):
            upto, special = self._append_some(owner, end, touched)
            if upto == self.derived_to:
                return  # What this is about is not scheduled yet.
            self.derived_to = upto
            if special is not None:
                self._apply(owner, special.kind, special.hour, special.decision())

    def _append_some(
        self, owner: HourOwner, end: int, touched: set[int] | None
    ) -> tuple[int, Noted | None]:
        """Some records to their hours; how far that went, and the record that ended it: one that
        is not for an hour's dispatch log."""
        gathered: dict[int, list[memoryview]] = {}
        places: dict[int, int] = {}
        upto, special = self.derived_to, None
        for noted in self._decisions.records(self.derived_to, end):
            if noted.end > end or noted.scheduled > self.scheduled_to:
                break
            upto = noted.end
            if noted.kind in NOT_FOR_HOURS:
                special = noted
                break
            hour = noted.hour
            place = places.get(hour, self._dispatch_files.ends.get(hour, 0))
            if noted.place < place or not owner.has(hour):
                continue
            if noted.place > place:
                self._not_known(hour, place)
                continue
            gathered.setdefault(hour, []).append(noted.record)
            places[hour] = place + len(noted.record)
        for hour, records in gathered.items():
            self._dispatch_files.append(hour, records)
        if touched is not None:
            touched.update(gathered)
        return upto, special

    def _apply(self, owner: HourOwner, kind: DecisionKind, hour: int, decision: Decision) -> None:
        if kind is DecisionKind.BEGUN and decision.first_sequence > self.begun:
            self.use_hours(decision.value)
            self.begun = decision.first_sequence
        elif kind is DecisionKind.GONE:
            self.gone_before = max(self.gone_before, decision.value)
            owner.gone(hour, decision.value)

    def _not_known(self, start: int, offset: int) -> None:
        path = self._dispatch_folder / hour_name(start)
        self.undecided[start] = unknown(f"{path} ends at {offset}, which is too early")
        log.error("decisions are lost; nothing of this hour is sent", hour=start, offset=offset)

    # Reading back

    def read_book(self, start: int, rows: int) -> DecisionBook:
        """The decisions about an hour, from its dispatch log and the journal behind what lies in
        it; raises `Corrupt`."""
        if start in self.undecided:
            raise Corrupt(self.undecided[start])
        book = DecisionBook()
        book.grow(rows)
        end = self._dispatch_files.ends.get(start, 0)
        at, form = 0, DispatchFormat()
        data = self._dispatch_files.read(start, 0, end) if end else b""
        view = memoryview(data)
        while at < end:
            size = form.size(view[at:])
            form.check(view[at : at + size], at)
            book.apply(decode(view[at : at + size]))
            at += size
        self._read_journal(book, start, end)
        return book

    def _read_journal(self, book: DecisionBook, start: int, end: int) -> None:
        at, safe = self.derived_to, self._decisions.safe_offset
        while at < safe:
            for noted in self._decisions.records(at, safe):
                if noted.end > safe:
                    return
                at = noted.end
                mine = noted.hour == start and noted.kind not in NOT_FOR_HOURS
                if mine and noted.place >= end:
                    book.apply(noted.decision())
