"""Finding batches by sequence and time, in memory, frozen and in tables."""

import tracemalloc

import pytest

from ternmq.storage.config import StorageConfig
from ternmq.storage.store import Store
from ternmq.testing.disk import SimulatedDisk
from tests.unit.storage.builders import (
    DATA,
    TABLE_0,
    Maker,
    TurnedClock,
    check_all,
    fresh,
    open_store,
    reopened,
)


def places(store: Store, sequence: int, rows_max: int, size_max: int = 10**9) -> list[int]:
    found = store.consume.entries(1, sequence, rows_max=rows_max, size_max=size_max)
    return [entry.base_sequence for entry in found]


def test_entries_begin_with_the_batch_that_holds_the_sequence_and_stop_at_the_limits() -> None:
    _, store, maker = fresh()
    maker.put(store, *[maker.append(1, rows=10) for _ in range(5)])
    assert places(store, 0, 10) == [0]
    assert places(store, 0, 11) == [0, 10]
    assert places(store, 15, 5) == [10]
    assert places(store, 15, 6) == [10, 20]
    assert places(store, 49, 1000) == [40]
    assert places(store, 50, 1000) == []
    size = len(maker.kept[0].batch)
    assert places(store, 0, 1000, size_max=1) == [0]
    assert places(store, 0, 1000, size_max=2 * size) == [0, 10]
    assert places(store, 0, 1000, size_max=3 * size - 1) == [0, 10]
    assert store.consume.entries(99, 0, rows_max=1, size_max=1) == []


def test_an_entry_tells_bloom_and_priority() -> None:
    _, store, maker = fresh()
    maker.put(store)
    entry = store.consume.entries(1, 0, rows_max=1, size_max=1)[0]
    assert (entry.tag_bloom, entry.priority, entry.location) == (5, 3, 0)


def test_readers_pass_from_tables_to_frozen_runs_to_memory_without_a_seam() -> None:
    _, store, maker = fresh()
    maker.put_many(store, 20)
    store.checkpoint()  # Two tables.
    maker.put_many(store, 17)  # Two more segments, not yet written.
    bases = [append.base_sequence for append in maker.kept]
    assert places(store, 0, 10**6) == bases
    for start in range(len(bases)):
        assert places(store, bases[start], 10**6) == bases[start:]
    store.checkpoint()
    assert places(store, 0, 10**6) == bases
    for append in maker.kept:
        for row in range(append.count):
            assert places(store, append.base_sequence + row, 1) == [append.base_sequence]


def test_long_runs_in_tables_are_read_chunk_by_chunk_from_any_place() -> None:
    config = StorageConfig(segment_batches_max=1500)
    disk, store, maker = fresh(config)
    maker.put(store, *[maker.append(1 + number % 2, rows=2) for number in range(4000)])
    store.close()
    again = reopened(disk, config)
    for start in (0, 1, 511, 512, 513, 1023, 1024, 1499, 1500, 1999, 2500, 3998, 3999):
        found = again.consume.entries(1, start, rows_max=1200, size_max=10**9)
        assert [entry.base_sequence for entry in found[:600]] == list(
            range(start // 2 * 2, min(4000, start // 2 * 2 + 1200), 2)
        )
    check_all(again, maker.kept)


def test_without_waiting_only_what_is_in_memory_or_page_cache_is_found() -> None:
    disk, store, maker = fresh()
    maker.put_many(store, 20)
    store.close()
    again = reopened(disk)

    def ask() -> list[int] | None:
        found = again.consume.entries_nowait(1, 0, rows_max=3, size_max=10**6)
        return None if found is None else [entry.base_sequence for entry in found]

    disk.cached = False
    assert ask() is None
    assert places(again, 0, 3) == [0, 1]
    assert ask() == [0, 1]  # The chunk is in memory now.
    last = again.consume.bounds(1)[1] - 1
    assert again.consume.entries_nowait(1, last, rows_max=1, size_max=1)


def test_at_time_finds_the_first_sequence_stored_at_or_after() -> None:
    disk = SimulatedDisk()
    clock = TurnedClock(1_000)
    store = open_store(disk, clock=clock)
    maker = Maker()
    for number in range(30):
        clock.wall_ms = 1_000 + 10 * number
        maker.put(store, maker.append(1 if number % 2 else 2))
        if number == 20:
            store.checkpoint()
    for opened in (store, open_store(disk, clock=clock)):
        assert opened.consume.at_time(1, 0) == 0
        for number in range(30):
            expected = number // 2
            assert opened.consume.at_time(1, 1_000 + 10 * number) == expected
            assert opened.consume.at_time(1, 1_001 + 10 * number) == (number + 1) // 2
        assert opened.consume.at_time(1, 9_999) == 15
        assert opened.consume.at_time(77, 0) == 0
        assert opened.consume.at_time_nowait(1, 9_999) == 15
        assert opened.consume.at_time_nowait(77, 0) == 0


def test_at_time_without_waiting_answers_only_what_is_in_memory() -> None:
    disk, store, maker = fresh()
    for topic_id in (1, 2, 1, 1):  # A segment each.
        maker.put_many(store, 8, (topic_id,))
    assert store.consume.at_time_nowait(2, 0) == 0
    store.close()
    again = reopened(disk)
    assert again.consume.at_time_nowait(2, 0) is None
    assert again.consume.at_time(2, 0) == 0
    assert again.consume.at_time_nowait(2, 0) == 0, "the table is in memory now"


def test_a_forgotten_topic_is_unknown_and_leaves_the_tables_with_the_next_segment() -> None:
    disk, store, maker = fresh()
    maker.put_many(store, 9, (1, 2, 3, 4))
    store.checkpoint()
    for topic_id in (4, 2, 3):
        store.consume.forget(topic_id)
    assert store.consume.bounds(2) == (0, 0)
    assert store.consume.entries(2, 0, rows_max=1, size_max=1) == []
    for _ in range(10):
        maker.put(store, maker.append(1))
    store.checkpoint()
    for _ in range(10):
        maker.put(store, maker.append(1))
    store.close()
    again = reopened(disk)
    assert again.consume.topic_ids() == [1, 4], "which ids were ever used is not forgotten"


def test_a_topic_without_a_message_for_many_segments_keeps_its_sequence() -> None:
    """The last table alone tells where every topic goes on."""
    disk, store, maker = fresh()
    maker.put(store, maker.append(5, rows=7))
    maker.put_many(store, 40)
    store.close()
    again = reopened(disk)
    assert again.consume.bounds(5) == (0, 7)
    assert maker.put(again, maker.append(5)).appends[0].base_sequence == 7
    assert [e.base_sequence for e in again.consume.entries(5, 0, rows_max=9, size_max=9**9)] == [
        0,
        7,
    ]


def test_when_the_oldest_segments_are_gone_topics_begin_later() -> None:
    """What retention will do: whole segments and their tables disappear from the front."""
    disk, store, maker = fresh()
    maker.put(store, maker.append(5, rows=7))
    maker.put_many(store, 40)
    store.close()
    names = disk.names(DATA / "message")
    for name in names[:2]:
        disk.remove(DATA / "message" / name)
        disk.remove(DATA / "consume" / name.replace(".log", ".table"))
    again = reopened(disk)
    kept = [a for a in maker.kept if a.offset >= int(names[2][:20])]
    assert again.consume.bounds(1) == (kept[0].base_sequence, store.consume.bounds(1)[1])
    assert again.consume.bounds(5) == (7, 7)
    assert places(again, 0, 1) == [kept[0].base_sequence]
    assert maker.put(again, maker.append(5)).appends[0].base_sequence == 7


def test_open_files_stay_within_the_bound_however_many_tables_there_are() -> None:
    config = StorageConfig(segment_batches_max=1, files_open_max=5)
    disk, store, maker = fresh(config)
    maker.put_many(store, 50)
    store.close()
    again = reopened(disk, config)
    check_all(again, maker.kept)
    assert len(again._message_segments._files) <= 7
    assert len(again.consume._tables._files._items) <= 5


def test_the_tail_of_a_topic_costs_little_memory() -> None:
    """50,000 topics on one node: a topic with one batch costs well under a kilobyte."""
    _, store, maker = fresh(StorageConfig())
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        maker.kept = []
        for first in range(0, 5_000, 500):
            staged = store.messages.stage([maker.append(t) for t in range(first, first + 500)])
            store.messages.write(staged)
            store.messages.commit(staged)
        store.checkpoint()
        del staged
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    in_simulated_files = 3 * store.messages.safe_offset + 2 * 80 * 5_000
    assert (used - in_simulated_files) / 5_000 < 1_000


@pytest.mark.parametrize("at", [0, 10, 45, 79])
def test_a_damaged_table_header_is_noticed_at_start(at: int) -> None:
    disk, store, maker = fresh()
    maker.put_many(store, 20)
    store.close()
    disk.flip(TABLE_0, at)
    again = reopened(disk)
    assert again.report.tables_rebuilt == [0]
    check_all(again, maker.kept)
