"""Who owns the hours: a store that follows, or one that leads. Two types for the same files.

While a member starts or follows (`FollowingStore`), the thread that derives its files owns its
hours too: every step puts safe messages and decisions into the files of hours and counts them in
memory. No hour is loaded and nothing is decided.

`FollowingStore.lead` does what is left of that and hands the hours to the event loop (`Engine`).
From then on there is a `LeadingStore`: the scheduling thread still owns the files, works on them
step by step and says what it did; of the hours it asks no more than whether one is there. The
`FollowingStore` is used up.
"""

from collections.abc import Container

from ternmq.batch.layout import STORED_SIZE_MAX
from ternmq.core.clock import Clock
from ternmq.delay.formats.checkpoint import DelayCheckpoint
from ternmq.delay.formats.paths import DelayPaths
from ternmq.delay.hours.decision_book import DecisionBook
from ternmq.delay.hours.hour import NEVER
from ternmq.delay.hours.hours import Hours
from ternmq.delay.store.loader import open_files
from ternmq.delay.store.schedule_log import Loaded, Scheduled
from ternmq.delay.store.store import DelayStore
from ternmq.delay.store.wal import SEGMENT_SIZE_MAX
from ternmq.storage.config import StorageConfig
from ternmq.storage.files.disk import Disk


class LeadingStore:
    """Files and hours of a member that leads."""

    def __init__(self, store: DelayStore, hours: Hours) -> None:
        """Use `FollowingStore.lead`."""
        self.store = store
        self.hours = hours

    # On the scheduling thread

    def schedule(self, near: Container[int]) -> Scheduled:
        """Put the next batches of the message log into the schedule logs; those of hours that are
        `near` are synced at once."""
        return self.store.derivation.schedule(near)

    def load(self, start: int, offset: int) -> Loaded:
        """Some records of an hour's schedule log from `offset` on."""
        return self.store.derivation.schedule_log.load(start, offset)

    def read_book(self, start: int, rows: int) -> DecisionBook:
        """What was decided about an hour; raises `Corrupt`."""
        return self.store.derivation.read_book(start, rows)

    def settling(self) -> tuple[int, list[int]]:
        """Derive what counts; how far that is, and which dispatch logs have to be synced for it."""
        return self.store.checkpoints.settling(self)

    def settle(self) -> None:
        """Derive what counts and sync all dispatch logs."""
        self.store.checkpoints.settle(self)

    def remove(self, starts: list[int]) -> list[int]:
        """Remove the files of hours that a checkpoint says are dropped; returns which."""
        return self.store.checkpoints.remove(starts, self)

    # As the owner of hours sees it from the scheduling thread

    def has(self, start: int) -> bool:
        return start in self.hours

    def gone(self, start: int, before_ms: int) -> None:
        """The event loop let it go when it decided that."""


class FollowingStore:
    """Files and hours of a member that does not lead. All of it blocks, one thread at a time."""

    def __init__(self, store: DelayStore, hours: Hours) -> None:
        """Use `FollowingStore.open`."""
        self.store = store
        self._hours: Hours | None = hours

    @classmethod
    def open(
        cls,
        disk: Disk,
        paths: DelayPaths,
        *,
        clock: Clock,
        hour_ms: int,
        segment_size: int,
        min_free: int,
        suffix: bool = False,
    ) -> "FollowingStore":
        """Open and recover; with `suffix` not everything that is written is safe. Raises
        `DiskFull` or `DiskFailed`."""
        config = StorageConfig(
            segment_size=max(STORED_SIZE_MAX, min(segment_size, SEGMENT_SIZE_MAX)),
            min_free=min_free,
        )
        opened = open_files(disk, paths)
        store = DelayStore(opened, clock=clock, hour_ms=hour_ms, config=config, suffix=suffix)
        following = cls(store, Hours(opened.hours, opened.known, store.derivation.scheduled_to))
        following.catch_up()
        if not suffix and hour_ms != store.known.hour_ms:
            # What follows is cut differently, so what is done must never be done again.
            store.derivation.use_hours(hour_ms)
            following.settle()
            store.checkpoint(following.snapshot())
        return following

    @property
    def hours(self) -> Hours:
        assert self._hours is not None, "this member leads: its hours are the event loop's"
        return self._hours

    def lead(self) -> LeadingStore:
        """Do what is left, and hand over the hours."""
        self.catch_up()
        hours, self._hours = self.hours, None
        return LeadingStore(self.store, hours)

    def catch_up(self) -> None:
        """Schedule and derive everything that is safe."""
        touched: set[int] = set()
        while self.follow_some(touched):
            pass
        hours, derivation = self.hours, self.store.derivation
        for start in touched & hours.keys() - derivation.undecided.keys():
            hour = hours[start]
            hour.take_book(derivation.read_book(start, hour.rows))
        for hour in hours.values():
            if hour.pending > 0 and hour.next_due >= NEVER:
                hour.next_due = hour.start  # What waits here could not be read before.
        self.store.messages.not_before(hours.stored_at_ms)

    def follow_some(self, touched: set[int] | None = None) -> bool:
        """One step of that; False: there is nothing to do. Raises."""
        derivation = self.store.derivation
        before = derivation.scheduled_to, derivation.derived_to
        if derivation.scheduled_to < derivation.schedulable:
            step = derivation.schedule(frozenset())
            for start, entry in step.entries:
                self.hours.grew(start, entry)
            self.hours.scheduled_upto(step.upto, step.stored_at_ms)
            if step.error is not None:
                raise step.error
        derivation.derive(self, touched)
        return before != (derivation.scheduled_to, derivation.derived_to)

    # As the owner of hours

    def has(self, start: int) -> bool:
        return start in self.hours

    def gone(self, start: int, before_ms: int) -> None:
        """The master let this hour go: so does this member."""
        hours, derivation = self.hours, self.store.derivation
        hours.stored_at_ms = max(hours.stored_at_ms, before_ms)
        hour = hours.get(start)
        if hour is None:
            return
        if start not in derivation.undecided:
            hour.take_counts(derivation.read_book(start, hour.rows))
        hours.leave(start)

    # Checkpoints

    def settle(self) -> None:
        """All decisions that count lie in dispatch logs, on disk."""
        self.store.checkpoints.settle(self)

    def snapshot(self, *, clean: bool = False) -> DelayCheckpoint:
        """How far everything is, while no step is taken."""
        return self.store.checkpoints.snapshot(self.hours, clean=clean)

    def remove(self, starts: list[int]) -> None:
        """Remove the files of hours that a checkpoint says are dropped."""
        self.hours.dropped(self.store.checkpoints.remove(starts, self))
