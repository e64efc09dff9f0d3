"""A store on a disk that tears, fails and loses power, against a list of what must be there.

Every seed is one life of a data directory: appends, pull records, checkpoints, faults, kills and
power cuts in random order, also in the middle of a write, of a checkpoint and of a recovery. After
every start:

- everything that was durable is there, with its bytes and its sequence;
- what is there beyond that is a prefix of what was written next: never a gap, never something that
  was refused for good;
- repeats of what is there are recognised, and of nothing else;
- the pull log replays what was committed, again as a prefix;
- what retention removed is gone or still there as a whole, its sequences are not given out again,
  and its repeats are recognised;
- nothing is called corrupt, because nothing was.
"""

from random import Random

import pytest

from ternmq.core.errors import DiskFailed, DiskFull
from ternmq.storage.config import StorageConfig
from ternmq.storage.log.append import Append
from ternmq.storage.pull.record import PullKind, PullRecord
from ternmq.storage.store import Store
from ternmq.testing.disk import PowerCut, SimulatedDisk
from tests.unit.storage.builders import Maker, TurnedClock, open_store

STEPS = 60
TOPICS = (1, 2, 7)
GROUP = 5


class Life:
    """One data directory, and what must be in it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.disk = SimulatedDisk(room=(0, 100, 4_000)[seed % 3])
        self.clock = TurnedClock()
        self.config = StorageConfig(
            flush=self.random.choice(("sync", "async")),
            flush_bytes=self.random.choice((1, 3000, 10**9)),
            segment_batches_max=self.random.choice((3, 10, 1000)),
            pull_segment_size=64 * 1024,
            producer_batches_max=1000,
        )
        self.maker = Maker()
        self.epoch = 0
        self.kept: list[Append] = []  # In log order; those below `durable` must survive.
        self.durable = 0
        self.maybe: list[Append] = []  # Written when the outcome was not told.
        self.refused: list[Append] = []
        self.pulls: list[PullRecord] = []
        self.pulls_durable = 0
        self.pulls_maybe: list[PullRecord] = []
        self.floors = {0}  # Where the log may begin: one is sure, a second when it is not known.
        self.store: Store | None = None
        self.start()

    # Steps

    def step(self) -> None:
        if self.store is None or self.store.messages.failed or self.store.pulls.failed:
            self.stop()
            return
        if self.random.random() < 0.15:
            self.plan_fault()
        chance = self.random.random()
        try:
            if chance < 0.55:
                self.append(self.store)
            elif chance < 0.75:
                self.pull(self.store)
            elif chance < 0.85:
                self.store.checkpoint()
            elif chance < 0.88:
                self.drop(self.store)
            elif chance < 0.92:
                self.clock.seconds += 1
                self.clock.wall_ms += self.random.randint(-500, 2000)
                self.store.messages.sync_due()
            else:
                self.stop()
        except PowerCut:
            self.note_durable()
            self.disk.crash(self.random.randrange(2**32))
            self.start()
        except DiskFailed:
            assert self.store.messages.failed  # Only an asynchronous sync ends up here.
        self.note_durable()

    def plan_fault(self) -> None:
        faults, chance = self.disk.faults, self.random.random()
        if chance < 0.3:
            faults.fail_write(self.random.randint(1, 3), self.random.choice(("full", "failed")))
        elif chance < 0.5:
            faults.fail_write(self.random.randint(1, 3), "short")
        elif chance < 0.7:
            faults.fail_sync(self.random.randint(1, 4))
        else:
            faults.cut_power(self.random.randint(1, 12))

    def append(self, store: Store) -> None:
        appends = [
            self.maker.append(
                self.random.choice(TOPICS),
                rows=self.random.randint(1, 4),
                body=self.random.randbytes(self.random.choice((0, 20, 700))),
            )
            for _ in range(self.random.randint(1, 4))
        ]
        staged = store.messages.stage(appends)
        if self.random.random() < 0.05:
            store.messages.abandon(staged)
            self.refused += appends
            return
        self.maybe = appends
        try:
            store.messages.write(staged)
        except (DiskFull, DiskFailed):
            store.messages.abandon(staged)
            if store.messages.failed is None:
                self.refused += appends
                self.maybe = []
            return
        store.messages.commit(staged)
        self.kept += appends
        self.maybe = []

    def drop(self, store: Store) -> None:
        """Retention: the oldest segment goes."""
        sealed = store.consume.sealed()
        if not sealed:
            return
        store.consume.trim(store.consume.ends_at(sealed[0].base))
        self.floors.add(sealed[0].end)
        try:
            store.drop_oldest(sealed[0].base)
        except (DiskFull, DiskFailed):
            return
        self.floors = {sealed[0].end}

    def pull(self, store: Store) -> None:
        sync = self.random.random() < 0.5
        records = [
            PullRecord(
                kind=PullKind.RETRY if sync else PullKind.ACKED,
                group_id=GROUP,
                lane_id=1,
                lease=len(self.pulls),
                ranges=((number, number + 1, 1),),
                text=self.random.randbytes(self.random.choice((0, 3, 300))),
            )
            for number in range(self.random.randint(1, 3))
        ]
        if not self.pulls:  # Records of a group that was never made are kept for nobody.
            records.insert(0, PullRecord(kind=PullKind.GROUP_MADE, group_id=GROUP, lane_id=1))
        staged = store.pulls.stage(records)
        self.pulls_maybe = records
        try:
            store.pulls.write(staged, sync)
        except (DiskFull, DiskFailed):
            store.pulls.abandon(staged)
            if store.pulls.failed is None:
                self.pulls_maybe = []
            return
        store.pulls.commit(staged)
        self.pulls += records
        self.pulls_maybe = []
        if sync:
            self.pulls_durable = len(self.pulls)

    def note_durable(self) -> None:
        store = self.store
        assert store is not None
        if store.messages.failed is None:
            while (
                self.durable < len(self.kept)
                and self.kept[self.durable].offset < store.messages.synced_offset
            ):
                self.durable += 1
        if self.config.flush == "sync":
            assert self.durable == len(self.kept)

    # Stopping and starting

    def stop(self) -> None:
        assert self.store is not None
        how = self.random.choice(("close", "kill", "power"))
        power = how == "power"
        if how == "close":
            try:
                self.store.close()
            except PowerCut:
                power = True
        self.note_durable()
        if power:
            self.disk.crash(self.random.randrange(2**32))
        else:
            self.disk.restart()
        self.start()

    def start(self) -> None:
        self.epoch += 1
        while True:
            if self.random.random() < 0.2:
                self.disk.faults.cut_power(self.random.randint(1, 15))
            try:
                self.store = open_store(self.disk, self.config, clock=self.clock, epoch=self.epoch)
                break
            except PowerCut:
                self.disk.crash(self.random.randrange(2**32))
        self.disk.faults.clear()
        self.check(self.store)

    # What must be true

    def check(self, store: Store) -> None:
        assert store.report.sound, store.report
        written = self.kept + self.maybe
        start = store.messages.start_offset
        assert start in self.floors
        self.floors = {start}
        firsts = {a.topic_id: a.base_sequence + a.count for a in written if a.offset < start}
        gone = [(a.offset, a.topic_id, a.base_sequence) for a in written if a.offset < start]
        found = gone + self.found_batches(store)
        assert self.durable <= len(found) <= len(written), (self.durable, len(found), len(written))
        ends: dict[int, int] = {}
        for (offset, topic_id, base_sequence), append in zip(found, written, strict=False):
            assert (offset, topic_id, base_sequence) == (
                append.offset,
                append.topic_id,
                append.base_sequence,
            )
            if offset >= start:
                assert store.messages.read(offset, len(append.batch)) == bytes(append.batch)
            assert base_sequence == ends.get(topic_id, 0)
            ends[topic_id] = base_sequence + append.count
            stored = store.producers.find((11, 22), append.first_sequence, append.count)
            assert stored is not None
            assert (stored.topic_id, stored.base_sequence) == (topic_id, base_sequence)
        for topic_id in TOPICS:
            first = firsts.get(topic_id, 0)
            assert store.consume.bounds(topic_id) == (first, ends.get(topic_id, 0))
        for append in self.refused + written[len(found) :]:
            assert store.producers.find((11, 22), append.first_sequence, append.count) is None
        self.refused += written[len(found) :]
        self.kept, self.maybe = written[: len(found)], []
        self.durable = len(found)  # Recovery has synced what it kept.
        self.check_pulls(store)

    def check_pulls(self, store: Store) -> None:
        replayed = [record for _, record in store.pulls.replay()]
        written = self.pulls + self.pulls_maybe
        assert self.pulls_durable <= len(replayed), (self.pulls_durable, len(replayed))
        assert replayed == written[: len(replayed)]
        self.pulls, self.pulls_maybe = replayed, []
        self.pulls_durable = len(replayed)

    def found_batches(self, store: Store) -> list[tuple[int, int, int]]:
        found: list[tuple[int, int, int]] = []
        for topic_id in TOPICS:
            sequence, end = store.consume.bounds(topic_id)
            while sequence < end:
                entries = store.consume.entries(
                    topic_id, sequence, rows_max=self.random.randint(1, 20), size_max=2000
                )
                assert entries[0].base_sequence == sequence
                for entry in entries:
                    assert entry.base_sequence == sequence
                    found.append((entry.offset, topic_id, entry.base_sequence))
                    sequence = entry.base_sequence + entry.count
        return sorted(found)


@pytest.mark.parametrize("first", range(0, 300, 25))
def test_a_store_keeps_its_promises_through_crashes(first: int) -> None:
    """R14, R17: 25 seeds a test; a failing seed is in the message."""
    for seed in range(first, first + 25):
        live(seed)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_store_keeps_its_promises_through_many_more_crashes() -> None:
    for seed in range(1000, 3000):
        live(seed)


def live(seed: int) -> None:
    try:
        life = Life(seed)
        for _ in range(STEPS):
            life.step()
        life.stop()
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error
