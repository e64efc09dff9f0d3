"""Ids and keys to places: in memory, in files, after crashes and damage (R15)."""

from collections.abc import Iterator

import numpy as np
import pytest

from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.core.errors import DiskFailed, Unavailable
from ternmq.core.ids import ProducerId
from ternmq.storage.index import index as index_module
from ternmq.storage.index import rebuild
from ternmq.storage.index.index_file import Guide, IndexFile, make_bloom
from ternmq.storage.index.rows import hash_rows, hash_values
from ternmq.storage.log.append import Append
from ternmq.storage.log.segmented_log import SegmentedLog
from ternmq.storage.messages.search import SearchFor
from ternmq.storage.store import Store
from ternmq.testing.disk import SimulatedDisk
from tests.unit.storage.builders import DATA, SMALL, Maker, fresh, open_store, reopened

INDEX = DATA / "index"
PRODUCER = ProducerId(start_ms=77, random=88)


def named(
    first: int, count: int, *, topic_id: int = 1, key: str = "k", prefix: str = "id"
) -> Append:
    """A batch of rows with explicit ids and keys."""
    rows = [
        Outgoing(
            body=b"body",
            key=f"{key}{number}",
            explicit_id=f"{prefix}{number}".encode(),
            born_at_ms=1,
        )
        for number in range(first, first + count)
    ]
    origin = Origin(topic="orders", app="shop", producer=PRODUCER)
    batch = encode_messages(rows, origin=origin, first_sequence=first)
    return Append(
        batch=batch,
        topic_id=topic_id,
        count=count,
        received_at_ms=1,
        producer=(PRODUCER.start_ms, PRODUCER.random),
        first_sequence=first,
        searchable=True,
    )


def sequences(store: Store, **wanted: object) -> list[tuple[int, int]]:
    found = store.search.find(SearchFor(**wanted))  # type: ignore[arg-type]
    return [(one.topic_id, one.sequence) for one in found]


def caught_up(store: Store) -> Store:
    store.upkeep_index()
    assert store.index.whole
    return store


def check_named(store: Store) -> None:
    """What `put_named` stored is found, and nothing else."""
    ids = [b"id%d" % number for number in range(60)]
    known = store.search.known_ids(1, [*ids, b"other", b"id60"])
    assert {number: place.sequence for number, place in known.items()} == {n: n for n in range(60)}
    assert store.search.known_ids(2, ids) == {}
    assert sequences(store, key="k17") == [(1, 17)]
    assert sequences(store, key="k170") == []
    assert sequences(store, message_id=b"id33") == [(1, 33)]


def put_named(store: Store, maker: Maker) -> None:
    for first in range(0, 60, 6):
        maker.put(store, named(first, 6))


def test_every_value_of_a_column_gets_the_hash_it_has_alone() -> None:
    values = [b"", b"a", b"ab", b"ba", bytes(5000), b"x" * 16, b""]
    together = hash_values(values)
    for number, value in enumerate(values):
        assert hash_values([value])[0] == together[number]
    assert len(set(together.tolist())) == 6
    offsets = np.array([0, 2, 3], dtype=np.int64)
    assert hash_rows(offsets, b"abc").tolist() == hash_values([b"ab", b"c"]).tolist()


def test_hashes_of_many_similar_values_do_not_meet() -> None:
    values = [b"order-%d" % number for number in range(50_000)]
    assert len(np.unique(hash_values(values))) == len(values)


def test_a_bloom_never_denies_what_is_there() -> None:
    hashes = hash_values([b"%d" % number for number in range(1000)])
    others = hash_values([b"other %d" % number for number in range(10_000)])
    guide = Guide([], np.frombuffer(make_bloom(hashes), np.uint8), 0)
    assert guide.maybe(hashes).all()
    assert guide.maybe(others).sum() < 200


def test_ids_and_keys_are_found_at_once_and_from_files() -> None:
    """R15: the active part in memory, the rest in files."""
    disk, store, maker = fresh()
    put_named(store, maker)
    check_named(store)
    store.close()
    assert disk.names(INDEX)
    again = open_store(disk)
    assert again.index.whole, "a clean stop leaves nothing to read"
    check_named(again)


def test_ids_made_of_a_producers_numbers_need_no_row_each() -> None:
    disk, store, maker = fresh()
    maker.put_many(store, 30, topic_ids=(1, 2))
    wanted = {}
    for append in maker.kept:
        for row in range(append.count):
            number = ProducerId(11, 22).message_id(append.first_sequence + row)
            wanted[number.to_bytes(16, "big")] = (append.topic_id, append.base_sequence + row)
    for one, place in wanted.items():
        assert sequences(store, message_id=one) == [place]
    store.close()
    [name] = disk.names(INDEX)
    file = IndexFile(disk, INDEX / name)
    assert file.counts == (30, 0, 0)
    again = open_store(disk)
    for one, place in wanted.items():
        assert sequences(again, message_id=one) == [place]
    unknown = ProducerId(11, 22).message_id(10_000).to_bytes(16, "big")
    assert sequences(again, message_id=unknown) == []


def test_after_a_kill_the_log_tells_it_again() -> None:
    disk, store, maker = fresh()
    put_named(store, maker)
    again = reopened(disk)
    assert not again.index.whole
    with pytest.raises(Unavailable):
        again.search.known_ids(1, [b"id1"])
    check_named(caught_up(again))


@pytest.mark.parametrize("seed", range(10))
def test_after_a_power_cut_what_is_kept_is_found(seed: int) -> None:
    disk, store, maker = fresh()
    put_named(store, maker)
    store.upkeep_index()
    store.index.close(store.messages.synced_offset)
    maker.put(store, named(60, 1, prefix="late"))
    disk.crash(seed)
    again = caught_up(open_store(disk, epoch=2))
    check_named(again)
    assert set(again.search.known_ids(1, [b"late60"])) == {0}


@pytest.mark.parametrize("how", ["missing", "header", "rows", "fences"])
def test_a_bad_index_file_is_made_again(how: str) -> None:
    disk, store, maker = fresh()
    put_named(store, maker)
    store.close()
    path = INDEX / disk.names(INDEX)[0]
    size = len(disk.read(path))
    if how == "missing":
        disk.unlink(path)
    else:
        file = disk.open(path, create=False)
        file.pwritev([b"\xff\xfe"], {"header": 20, "rows": 600, "fences": size - 40}[how])
        file.sync()
    again = open_store(disk)
    try:
        check_named(again)
        assert how == "never found out"
    except Unavailable:
        pass
    check_named(caught_up(again))


def test_memory_is_bounded_and_small_files_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "SPILL_ROWS", 20)
    monkeypatch.setattr(index_module, "SMALL_ROWS", 100)
    disk, store, maker = fresh()
    for first in range(0, 60, 6):
        maker.put(store, named(first, 6))
        store.upkeep_index()
    assert len(disk.names(INDEX)) == 2
    check_named(store)


def test_more_than_may_wait_is_read_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "WAITING_ROUNDS_MAX", 3)
    monkeypatch.setattr(index_module, "HELD_SIZE_MAX", 1000)
    _, store, maker = fresh()
    put_named(store, maker)
    assert not store.index.whole
    check_named(caught_up(store))


def test_a_key_may_repeat_and_time_narrows_the_search() -> None:
    _, store, maker = fresh()
    clock = store._clock
    for number in range(5):
        clock.wall_ms = 1_700_000_000_000 + number * 1000  # type: ignore[attr-defined]
        maker.put(store, named(0, 1, prefix=f"p{number}", topic_id=1 + number % 2))
    assert sequences(store, key="k0") == [(1, 2), (2, 1), (1, 1), (2, 0), (1, 0)]
    assert sequences(store, key="k0", limit=2) == [(1, 2), (2, 1)]
    assert sequences(store, key="k0", topic_ids=frozenset({2})) == [(2, 1), (2, 0)]
    window = {"start_ms": 1_700_000_001_000, "end_ms": 1_700_000_003_000}
    assert sequences(store, key="k0", **window) == [(1, 1), (2, 0)]


def test_files_go_when_their_part_of_the_log_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "SMALL_ROWS", 0)
    disk, store, maker = fresh()
    for first in range(0, 60, 6):
        maker.put(store, named(first, 6))
        store.index.close(store.messages.synced_offset)
    assert len(disk.names(INDEX)) == 10
    store._message_segments.drop_before(store.messages.safe_offset)
    store.upkeep_index()
    assert len(disk.names(INDEX)) == 2


def test_a_cut_log_voids_the_files_beyond() -> None:
    disk, store, maker = fresh()
    maker.put(store, named(0, 6))
    kept = store.messages.safe_offset
    maker.put(store, named(6, 6, prefix="gone"))
    store.index.close(store.messages.synced_offset)
    store._message_segments.cut(kept)
    fresh_index = index_module.MessageIndex(disk, store._paths, store._message_segments, kept)
    assert not fresh_index.whole
    assert disk.names(INDEX) == []


def test_one_disk_can_hold_an_index_of_nothing() -> None:
    disk = SimulatedDisk()
    store = open_store(disk, SMALL)
    store.upkeep_index()
    store.close()
    assert open_store(disk).search.find(SearchFor(key="x")) == []


def test_a_read_that_fails_while_folding_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that is stored must never be called new: it would be stored twice."""
    monkeypatch.setattr(index_module, "HELD_SIZE_MAX", 0)
    monkeypatch.setattr(index_module, "FOLD_BATCHES", 2)
    disk, store, maker = fresh()
    put_named(store, maker)
    read, reads = SegmentedLog.read, iter(range(1_000))

    def failing(log: SegmentedLog, offset: int, size: int) -> bytes:
        if next(reads) == 6:
            raise DiskFailed("EIO")
        return read(log, offset, size)

    with monkeypatch.context() as patch:
        patch.setattr(SegmentedLog, "read", failing)
        with pytest.raises(DiskFailed):
            store.index.fold()
    assert not store.index.whole, "and says so until it is read again"
    check_named(caught_up(store))
    check_named(caught_up(reopened(disk)))


def test_what_falls_behind_while_a_gap_is_read_is_read_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_module, "WAITING_ROUNDS_MAX", 3)
    _, store, maker = fresh()
    put_named(store, maker)
    read_batches, meanwhile = rebuild.batches, [60, 66, 72, 78, 84]

    def reading(source: SegmentedLog, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
        for found in read_batches(source, start, end):
            while meanwhile:  # What the loop stores at this moment.
                maker.put(store, named(meanwhile.pop(0), 6))
            yield found

    monkeypatch.setattr(index_module, "batches", reading)
    caught_up(store)
    store.upkeep_index()

    ids = [b"id%d" % number for number in range(90)]
    assert len(store.search.known_ids(1, ids)) == 90
