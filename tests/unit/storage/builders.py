"""Stores on a simulated disk, small batches to put in them, and what to expect back."""

from pathlib import Path

from ternmq.batch.encoder import Origin, encode_bodies
from ternmq.batch.layout import Encoding
from ternmq.core.ids import ProducerId
from ternmq.storage.config import StorageConfig, StoreOpening
from ternmq.storage.files.disk import Disk
from ternmq.storage.log.append import Append, StagedBatches
from ternmq.storage.pull.pull_log import PullRecord
from ternmq.storage.store import Store
from ternmq.testing.disk import SimulatedDisk

DATA = Path("/data")
MESSAGE_0 = DATA / "message" / f"{0:020d}.log"
TAIL_0 = DATA / "consume" / f"{0:020d}.tail"
TABLE_0 = DATA / "consume" / f"{0:020d}.table"
PULL_0 = DATA / "pull" / f"{0:020d}.log"
SMALL = StorageConfig(segment_batches_max=8)


class TurnedClock:
    """A clock that stands still until a test turns it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.wall_ms = now_ms
        self.seconds = 0.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.seconds


def batch(rows: int = 1, body: bytes = b"body", *, first_sequence: int = 0) -> bytearray:
    origin = Origin(topic="orders", app="shop", producer=ProducerId(start_ms=11, random=22))
    return encode_bodies(
        [body] * rows,
        origin=origin,
        first_sequence=first_sequence,
        born_at_ms=33,
        encoding=Encoding.PLAIN,
    )


class Maker:
    """Makes appends with fresh producer sequences, and remembers what was committed."""

    def __init__(self) -> None:
        self.next_sequence = 0
        self.kept: list[Append] = []

    def append(self, topic_id: int = 1, rows: int = 1, body: bytes = b"body") -> Append:
        first = self.next_sequence
        self.next_sequence += rows
        return Append(
            batch=batch(rows, body, first_sequence=first),
            topic_id=topic_id,
            count=rows,
            received_at_ms=44,
            producer=(11, 22),
            first_sequence=first,
            tag_bloom=5,
            priority=3,
        )

    def put(self, store: Store, *appends: Append) -> StagedBatches:
        """Stage, write and commit one group."""
        staged = store.messages.stage(list(appends) or [self.append()])
        try:
            store.messages.write(staged)
        except Exception:
            store.messages.abandon(staged)
            raise
        store.messages.commit(staged)
        self.kept += staged.appends
        return staged

    def put_many(self, store: Store, count: int, topic_ids: tuple[int, ...] = (1,)) -> None:
        """`count` groups of one batch, topics in turn."""
        for number in range(count):
            topic_id = topic_ids[number % len(topic_ids)]
            self.put(store, self.append(topic_id, rows=1 + number % 3, body=b"%d" % number))


def open_store(
    disk: Disk,
    config: StorageConfig = SMALL,
    *,
    clock: TurnedClock | None = None,
    epoch: int = 1,
    suffix: bool = False,
    again: bool = False,
) -> Store:
    return Store.open(
        disk,
        DATA,
        clock=clock or TurnedClock(),
        epoch=epoch,
        config=config,
        opening=StoreOpening(suffix=suffix, again=again),
    )


def fresh(config: StorageConfig = SMALL) -> tuple[SimulatedDisk, Store, Maker]:
    disk = SimulatedDisk()
    return disk, open_store(disk, config), Maker()


def reopened(disk: SimulatedDisk, config: StorageConfig = SMALL) -> Store:
    """What a new process finds after the old one was killed."""
    disk.restart()
    return open_store(disk, config, epoch=2)


def check_all(store: Store, kept: list[Append]) -> None:
    """Every kept batch is found under its sequence, with its bytes; sequences have no gap."""
    ends: dict[int, int] = {}
    for append in kept:
        assert append.base_sequence == ends.get(append.topic_id, 0)
        ends[append.topic_id] = append.base_sequence + append.count
        found = store.consume.entries(append.topic_id, append.base_sequence, rows_max=1, size_max=1)
        assert found, append
        entry = found[0]
        assert (entry.base_sequence, entry.count) == (append.base_sequence, append.count)
        assert (entry.offset, entry.size) == (append.offset, len(append.batch))
        assert entry.stored_at_ms == append.stored_at_ms
        assert store.messages.read(entry.offset, entry.size) == bytes(append.batch)
    for topic_id, end in ends.items():
        assert store.consume.bounds(topic_id) == (0, end)


def put_pulls(store: Store, *records: PullRecord, sync: bool = True) -> list[int]:
    staged = store.pulls.stage(list(records))
    try:
        store.pulls.write(staged, sync)
    except Exception:
        store.pulls.abandon(staged)
        raise
    store.pulls.commit(staged)
    return staged.offsets
