"""One hour that has messages, loaded or not: its counts and marks. Pure memory.

An hour is known by the UTC millisecond it starts at. Loaded, it also has its `HourIndex` (where
rows lie) and `DecisionBook` (what became of them). `next_due` is never later than the first row
that is not settled, so an hour that is loaded by it is loaded in time, whatever moved in it or is
released by its broker group.
"""

from collections import Counter
from dataclasses import dataclass, field

from ternmq.delay.formats.checkpoint import KnownHour
from ternmq.delay.hours.decision_book import DecisionBook
from ternmq.delay.hours.hour_index import HourIndex, IndexedRows

NEVER = 2**62


@dataclass(slots=True)
class Hour:
    """One hour of the schedule."""

    start: int
    rows: int = 0
    length: int = 0
    """Bytes of its schedule log."""
    wal_offset: int = -1
    """The last batch that rows in here came from."""
    wal_pieces: int = 0
    """How many pieces of that batch are in here."""
    next_due: int = NEVER
    topics: Counter[int] = field(default_factory=Counter)
    """Rows per topic, whatever became of them."""
    dispatched: Counter[int] = field(default_factory=Counter)
    cancelled: Counter[int] = field(default_factory=Counter)
    moves: dict[int, tuple[int, int]] = field(default_factory=dict)
    """(due, topic) of rows that were moved and are not settled."""
    damaged: int = 0
    """Bytes that cannot be read; their rows stay pending until an operator looks."""
    waiting: int = 0
    """Rows on their way between the wheel and a synced intent."""
    aside: set[int] = field(default_factory=set)
    """Rows that are due and could not be read: pending, and tried again after a restart."""
    index: HourIndex | None = None
    book: DecisionBook | None = None
    loading: bool = False
    deciding: int = 0
    """Decisions about its rows that are on their way to the disk."""
    last_known: KnownHour | None = None
    """What the last checkpoint would have said."""

    @classmethod
    def as_known(cls, known: KnownHour) -> "Hour":
        """As far as a checkpoint knows it."""
        return cls(
            known.start,
            known.rows,
            known.length,
            known.wal_offset,
            known.wal_pieces,
            known.next_due,
            Counter(dict(known.topics)),
        )

    @property
    def loaded(self) -> bool:
        return self.index is not None and not self.loading

    @property
    def settled(self) -> int:
        return self.dispatched.total() + self.cancelled.total()

    @property
    def pending(self) -> int:
        """Rows that are not yet with a broker and not cancelled."""
        return self.rows - self.settled

    def pending_of(self, topic_id: int) -> int:
        return self.topics[topic_id] - self.dispatched[topic_id] - self.cancelled[topic_id]

    def grew(self, entry: IndexedRows) -> None:
        """A record was added to its schedule log."""
        same = entry.wal_offset == self.wal_offset
        self.wal_pieces = self.wal_pieces + 1 if same else 1
        self.wal_offset = entry.wal_offset
        self.rows = entry.first_row + entry.row_count
        self.length = entry.offset + entry.size
        self.topics[entry.topic_id] += entry.row_count
        self.next_due = min(self.next_due, int(entry.due_ms.min()))

    def known(self, decided: int) -> KnownHour:
        """What a checkpoint says of it. Most of thousands of hours are as they were."""
        last, now = self.last_known, (self.length, self.next_due, decided)
        if last is not None and (last.length, last.next_due, last.decided) == now:
            return last
        self.last_known = KnownHour(
            start=self.start,
            length=self.length,
            rows=self.rows,
            wal_offset=self.wal_offset,
            wal_pieces=self.wal_pieces,
            next_due=self.next_due,
            topics=list(self.topics.items()),
            decided=decided,
        )
        return self.last_known

    def take_book(self, book: DecisionBook) -> None:
        """Count by the book that a start read, or a replica that comes to lead. A book with open
        intents stays in memory: it is wanted at once."""
        self.take_counts(book)
        self.next_due = min([self.next_due, *(due for due, _ in book.moves.values())])
        self.book = book if book.intents else None

    def take_counts(self, book: DecisionBook) -> None:
        """Count by this book from now on, also when the hour is not loaded any more."""
        self.dispatched = book.dispatched
        self.cancelled = book.cancelled
        self.moves = book.moves
