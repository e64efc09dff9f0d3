"""Checkpoints of a delay server: how far every file is on disk, and the removal of what is over.

A checkpoint is true when it is written, so everything that it names is synced before: the dispatch
logs (`settle`), then the schedule logs. Only then the files of hours that are gone, and what of
both logs lies in the files of hours, are removed. Hours that a new replica copies, and parts of the
logs that other members lack, stay. Blocks, on the scheduling thread; `snapshot` runs where the
hours are owned.
"""

from collections.abc import Iterable, Mapping

from ternmq.core.units import MIB
from ternmq.delay.formats import checkpoint as checkpoint_file
from ternmq.delay.formats.checkpoint import DelayCheckpoint, KnownTopic
from ternmq.delay.hours.hour import NEVER
from ternmq.delay.hours.hours import Hours
from ternmq.delay.store.derivation import Derivation, HourOwner
from ternmq.delay.store.journal import Journal
from ternmq.delay.store.loader import Opened
from ternmq.delay.store.record_cache import RecordCache
from ternmq.delay.store.wal import Wal
from ternmq.storage.log.leader_epochs import MESSAGES, PULLS

PRODUCERS_EACH = 64 * MIB  # The producers file is written when the message log has grown so much.
DECISIONS = PULLS
"""The journal is the second log of a delay server, as the pull log is a broker's."""


class Checkpoints:
    """The last checkpoint and the next one."""

    def __init__(
        self,
        opened: Opened,
        wal: Wal,
        decisions: Journal,
        derivation: Derivation,
        records: RecordCache,
    ) -> None:
        self._disk = opened.disk
        self._paths = opened.paths
        self._schedule_files = opened.schedule_files
        self._dispatch_files = opened.dispatch_files
        self._wal = wal
        self._decisions = decisions
        self._derivation = derivation
        self._records = records
        self.known = opened.known
        """The last one that was written."""
        self.names: dict[int, str] = {topic.id: topic.name for topic in self.known.topics}
        """Topic names by id, for people; the event loop adds those of messages that arrive."""
        self.taken: dict[tuple[int, int], int] = {
            (start, random): upto for start, random, upto in self.known.taken
        }
        """How far brokers' topics were taken, by producer: what `CommittedTaker` has made safe."""
        self._settled_to = derivation.derived_to
        self._needed: Mapping[int, int] = {}
        self._held: dict[int, frozenset[int]] = {}

    # What others need

    def keep_from(self, needed: Mapping[int, int]) -> None:
        """From where on other members need the logs, by log."""
        self._needed = needed

    def hold(self, holder: int, hours: Iterable[int]) -> None:
        """Keep the files of these hours, and both logs as they are, until `let_go`."""
        self._held[holder] = frozenset(hours)

    def holds(self, holder: int) -> bool:
        return holder in self._held

    def let_go(self, holder: int) -> None:
        self._held.pop(holder, None)

    # Dispatch logs

    def settling(self, owner: HourOwner) -> tuple[int, list[int]]:
        """How far the journal lies in dispatch logs, and which of them have to be synced for it;
        `settled` follows."""
        self._derivation.derive(owner)
        files = self._dispatch_files
        return self._derivation.derived_to, [
            hour for hour, end in list(files.ends.items()) if files.behind(hour, end)
        ]

    def settled(self, upto: int) -> None:
        """The journal below `upto` lies in dispatch logs, on disk."""
        self._settled_to = upto

    def settle(self, owner: HourOwner) -> None:
        """Derive, and sync all dispatch logs."""
        upto, behind = self.settling(owner)
        self._dispatch_files.sync_many(behind)
        self.settled(upto)

    # Writing

    def snapshot(self, hours: Hours, *, clean: bool = False) -> DelayCheckpoint:
        """How far everything is, as the owner of the hours sees it, while nothing is scheduled."""
        derivation, schedule_log = self._derivation, self._derivation.schedule_log
        return DelayCheckpoint(
            clean=clean,
            hour_ms=schedule_log.hour_ms,
            wal_durable=self._wal.messages.safe_offset,
            scheduled=hours.scheduled_to,
            stored_at_ms=hours.stored_at_ms,
            hours=[
                hour.known(self._dispatch_files.synced.get(start, 0))
                for start, hour in hours.items()
            ],
            topics=[
                KnownTopic(
                    id=topic_id,
                    name=self.names.get(topic_id, ""),
                    accepted=accepted,
                    dispatched=hours.gone_dispatched[topic_id],
                    cancelled=hours.gone_cancelled[topic_id],
                )
                for topic_id, accepted in self._wal.counts.ends.items()
            ],
            dropping=sorted(hours.dropping),
            taken=[(*producer, upto) for producer, upto in self.taken.items()],
            decided_to=self._settled_to,
            decision_safe=self._decisions.derivable,
            begun=derivation.begun,
            gone_before=derivation.gone_before,
            hour_floor=schedule_log.floor_ms,
        )

    def behind(self, now: DelayCheckpoint) -> list[int]:
        """Hours that must be synced before this checkpoint is true."""
        files = self._schedule_files
        return [hour.start for hour in now.hours if files.behind(hour.start, hour.length)]

    def write(self, now: DelayCheckpoint) -> None:
        """Sync what was scheduled, then write down how far everything is."""
        self._schedule_files.sync_many(self.behind(now))
        covers = self._wal.messages.safe_offset
        if now.clean or covers - self._wal.producers_to >= PRODUCERS_EACH:
            self._disk.write_atomic(self._paths.producers, self._wal.producers.snapshot(covers))
            self._wal.producers_to = covers
        content = checkpoint_file.encode(now)
        # Nothing else knows which messages of the message log went out and were removed.
        for path in (self._paths.checkpoint, self._paths.checkpoint_copy):
            self._disk.write_atomic(path, content)
        self.known = now

    # Removing

    def trim(self) -> None:
        """Remove what of both logs lies in the files of hours, and no member needs, nor the start
        to know the producers."""
        if self._held:
            return
        known, needed = self.known, self._needed
        messages = min(known.scheduled, self._wal.producers_to, needed.get(MESSAGES, NEVER))
        self._wal.forget_before(messages)
        self._decisions.forget_before(min(known.decided_to, needed.get(DECISIONS, NEVER)))

    def remove(self, hours: list[int], owner: HourOwner) -> list[int]:
        """Remove hours that a checkpoint says are dropped, but for those that are being copied;
        returns which. Schedules first, so that a crash in between never leaves rows without the
        knowledge that they are settled."""
        held = frozenset[int]().union(*list(self._held.values()))
        hours = [hour for hour in hours if hour not in held]
        self._derivation.derive(owner)  # Nothing that is to come may make a file again.
        self._derivation.schedule_log.forget(hours)
        self._dispatch_files.drop(hours)
        self._records.forget(hours)
        return hours
