"""What a start makes of logs that were torn, flipped, shortened or left without their helpers."""

import pytest

from ternmq.core.errors import Corrupt, ProtocolError
from ternmq.core.units import align8
from ternmq.storage.config import StorageConfig
from ternmq.storage.consume.entry import Location
from ternmq.storage.log.append import Append
from ternmq.storage.log.recovery import Gap, Scan, decide
from ternmq.storage.pull.record import PullKind, PullRecord
from ternmq.storage.store import Store
from ternmq.testing.disk import SimulatedDisk
from tests.unit.storage.builders import (
    DATA,
    MESSAGE_0,
    SMALL,
    TABLE_0,
    TAIL_0,
    Maker,
    check_all,
    fresh,
    put_pulls,
    reopened,
)

ONE_SEGMENT = StorageConfig(segment_batches_max=1_000_000)
MARK = DATA / "message.mark"


def torn_size(rest: bytes) -> int:
    """What is told of as torn: zeros at the end are no record, but room."""
    return min(len(rest), align8(len(rest.rstrip(b"\0"))))


def written(groups: list[list[Append]]) -> tuple[SimulatedDisk, Store, Maker]:
    disk, store, maker = fresh(ONE_SEGMENT)
    for group in groups:
        maker.put(store, *group)
    return disk, store, maker


def four_groups() -> list[list[Append]]:
    maker = Maker()
    return [
        [maker.append(1, rows=3, body=b"a" * 40), maker.append(2)],
        [maker.append(2, rows=2)],
        [maker.append(1, body=b"b" * 100)],
        [maker.append(1, rows=2)],
    ]


def test_a_log_cut_at_any_byte_keeps_every_whole_batch_before_it() -> None:
    """R14: crash at every byte. No checkpoint has seen these batches."""
    groups = four_groups()
    disk, _, maker = written(groups)
    content = disk.read(MESSAGE_0)
    last_group = maker.kept[-1].offset
    for size in range(last_group, len(content) + 1):
        copy = SimulatedDisk()
        copy.place(MESSAGE_0, content[:size])
        store = reopened(copy, ONE_SEGMENT)
        kept = [a for a in maker.kept if a.offset + len(a.batch) <= size]
        check_all(store, kept)
        assert store.messages.safe_offset == kept[-1].offset + len(kept[-1].batch)
        torn = torn_size(content[store.messages.safe_offset : size])
        assert sum(cut.size for cut in store.report.cuts) == torn
        assert store.report.sound
        Maker().put(store)  # And it goes on.


def test_a_log_shortened_below_a_durable_mark_is_a_hole_and_never_reuses_a_sequence() -> None:
    disk, store, maker = written(four_groups())
    store.checkpoint()
    content = disk.read(MESSAGE_0)
    tail = disk.read(TAIL_0)
    for size in range(0, len(content), 8):
        copy = SimulatedDisk()
        copy.place(MESSAGE_0, content[:size])
        copy.place(TAIL_0, tail)
        again = reopened(copy, ONE_SEGMENT)
        assert [hole.offset for hole in again.report.holes] == [size]
        assert again.consume.bounds(1) == (0, 6)
        assert again.consume.bounds(2) == (0, 3)
        assert again.messages.safe_offset == len(content)
        for append in maker.kept:
            if append.offset + len(append.batch) <= size:
                again.messages.read(append.offset, len(append.batch))
            else:
                with pytest.raises(Corrupt):
                    again.messages.read(append.offset, len(append.batch))
        more = Maker().put(again, Maker().append(1)).appends[0]
        assert (more.base_sequence, more.offset) == (6, len(content))


@pytest.mark.parametrize("length", [1, 7, 8, 100, 511, 512, 4096])
@pytest.mark.parametrize("filler", [b"\x00", b"\xff", b"TERN"])
def test_torn_bytes_after_the_last_batch_are_cut_and_said(length: int, filler: bytes) -> None:
    disk, _, maker = written(four_groups())
    content = disk.read(MESSAGE_0)
    disk.place(MESSAGE_0, content + (filler * length)[:length])
    store = reopened(disk, ONE_SEGMENT)
    check_all(store, maker.kept)
    said = [] if filler == b"\x00" else [(len(content), length)]
    assert [(cut.offset, cut.size) for cut in store.report.cuts] == said
    assert disk.read(MESSAGE_0) == content


def test_a_torn_tail_of_every_length_is_cut_at_the_last_whole_record() -> None:
    disk, store, maker = written(four_groups())
    good = disk.read(MESSAGE_0)
    big = maker.append(3, rows=4, body=b"z" * 300)
    maker.put(store, big)
    content = disk.read(MESSAGE_0)
    maker.kept.pop()
    for torn in range(1, len(content) - len(good)):
        copy = SimulatedDisk()
        copy.place(MESSAGE_0, content[: len(good) + torn])
        again = reopened(copy, ONE_SEGMENT)
        check_all(again, maker.kept)
        assert again.consume.bounds(3) == (0, 0)
        size = torn_size(content[len(good) : len(good) + torn])
        assert [(cut.offset, cut.size) for cut in again.report.cuts] == [(len(good), size)]
        assert copy.read(MESSAGE_0) == good


def test_a_batch_that_ends_in_zeros_is_kept_before_the_room_behind_it() -> None:
    """Room is told from a record by reading records, not by looking for zeros."""
    disk, store, maker = fresh(ONE_SEGMENT)
    maker.put(store, maker.append(1, body=b"a"), maker.append(1, body=bytes(2_000)))
    end = store.messages.safe_offset
    for room in (1, 8, 3_999, 4_000):
        copy = SimulatedDisk()
        copy.place(MESSAGE_0, disk.read(MESSAGE_0) + bytes(room))
        again = reopened(copy, ONE_SEGMENT)
        check_all(again, maker.kept)
        assert (again.messages.safe_offset, again.report.cuts) == (end, [])


@pytest.mark.parametrize("log", ["message", "pull"])
def test_a_sealed_segment_that_is_cut_short_is_a_hole_at_every_start(log: str) -> None:
    """Its table and its tail file say nothing of it. A start that was killed behind the hole,
    before anybody knew, is the same."""
    config = StorageConfig(segment_batches_max=1, pull_segment_size=64 * 1024)
    disk, store, maker = fresh(config)
    for _ in range(3):
        maker.put(store, maker.append(1, rows=3))
        put_pulls(store, PullRecord(kind=PullKind.SNAPSHOT, group_id=5, text=bytes(50_000)))
    store.checkpoint()
    sealed = DATA / log / f"{0:020d}.log"
    length = len(disk.read(sealed))
    disk.cut(sealed, length - 100)
    for _ in range(2):
        again = reopened(disk, config)
        holes = [(hole.log, hole.offset, hole.size) for hole in again.report.holes]
        assert holes == [(log, length - 100, 100)]
        assert not again.report.sound


def test_zeros_below_the_mark_are_a_hole_and_not_room() -> None:
    """The size of a file says nothing about what is in it: the mark does."""
    disk, store, maker = written(four_groups())
    last = maker.kept[-1]
    content = disk.read(MESSAGE_0)
    mark = disk.read(MARK)
    copy = SimulatedDisk()
    copy.place(MESSAGE_0, content[: last.offset] + bytes(9_000))
    copy.place(MARK, mark)
    again = reopened(copy, ONE_SEGMENT)
    assert [(hole.offset, hole.size) for hole in again.report.holes] == [
        (last.offset, len(content) - last.offset)
    ]
    assert again.messages.safe_offset == store.messages.safe_offset
    assert not again.report.sound


def test_any_bit_flipped_below_the_durable_mark_is_a_hole_and_costs_only_its_batch() -> None:
    """The second group carries durable_to = end of the first: the first was safe."""
    groups = four_groups()
    disk, _, maker = written(groups)
    content = disk.read(MESSAGE_0)
    victim = maker.kept[2]  # Topic 2, sequences 1 and 2, the second group.
    for at in range(victim.offset, victim.offset + len(victim.batch)):
        copy = SimulatedDisk()
        copy.place(MESSAGE_0, content)
        copy.flip(MESSAGE_0, at, bit=at % 8)
        store = reopened(copy, ONE_SEGMENT)
        assert not store.report.cuts
        assert [hole.offset for hole in store.report.holes] == [victim.offset]
        assert copy.read(MESSAGE_0)[: len(content)] != content  # The bad bytes are still there,
        names = copy.names(DATA / "quarantine")
        assert f"message-{victim.offset:020d}-corrupt.bad" in names  # with a copy and a report.
        assert f"message-{victim.offset:020d}-corrupt.json" in names
        for append in maker.kept:
            if append is not victim:
                store.messages.read(append.offset, len(append.batch))
        with pytest.raises(Corrupt):
            store.messages.read(victim.offset, len(victim.batch))
        assert store.consume.bounds(1) == (0, 6)
        assert store.messages.safe_offset == len(content)


def test_a_hole_keeps_its_sequences_when_the_topic_goes_on_after_it() -> None:
    maker = Maker()
    groups = [[maker.append(1, rows=rows)] for rows in (2, 3, 4)]
    disk, _, made = written(groups)
    victim = made.kept[1]
    for at in (0, 8, 40, 136, len(victim.batch) - 1):
        copy = SimulatedDisk()
        copy.place(MESSAGE_0, disk.read(MESSAGE_0))
        copy.flip(MESSAGE_0, victim.offset + at)
        store = reopened(copy, ONE_SEGMENT)
        assert store.consume.bounds(1) == (0, 9)
        entries = store.consume.entries(1, 0, rows_max=100, size_max=10**6)
        assert [(e.base_sequence, e.count) for e in entries] == [(0, 2), (2, 3), (5, 4)]
        assert [e.location for e in entries] == [0, Location.LOST, 0]
        with pytest.raises(Corrupt):
            store.messages.read(entries[1].offset, entries[1].size)
        assert [(rows.first, rows.end) for rows in store.report.lost] == [(2, 5)]
        again = reopened(copy, ONE_SEGMENT)  # It is the same at the next start.
        assert again.consume.entries(1, 0, rows_max=100, size_max=10**6) == entries


@pytest.mark.parametrize("at", [130, 136, 137, 150, 300])
def test_a_damaged_last_batch_of_a_topic_keeps_its_sequences_by_its_whole_stamp(at: int) -> None:
    """Also when the flipped bit is in the row count: the body offsets tell it too."""
    maker = Maker()
    disk, _, made = written([[maker.append(1, rows=5)], [maker.append(2)], [maker.append(2)]])
    disk.flip(MESSAGE_0, made.kept[0].offset + at, bit=2)
    store = reopened(disk, ONE_SEGMENT)
    assert store.consume.bounds(1)[1] >= 5
    assert Maker().put(store, Maker().append(1)).appends[0].base_sequence >= 5


def test_a_bit_flipped_above_the_durable_mark_is_a_torn_tail_and_what_follows_is_copied() -> None:
    """Nobody was told that the group is safe: its first batch is bad, its second whole."""
    maker = Maker()
    groups = [[maker.append(1)], [maker.append(1), maker.append(2)]]
    disk, _, made = written(groups)
    victim = made.kept[1]
    disk.flip(MESSAGE_0, victim.offset + 150)
    disk.remove(MARK)  # The power went before it was written.
    store = reopened(disk, ONE_SEGMENT)
    assert [cut.offset for cut in store.report.cuts] == [victim.offset]
    assert store.report.cuts[0].copied_to
    assert store.report.sound
    assert store.consume.bounds(1) == (0, 1)
    assert store.consume.bounds(2) == (0, 0)


def test_the_same_bit_flip_is_corruption_where_the_mark_says_that_it_was_on_disk() -> None:
    maker = Maker()
    disk, _, made = written([[maker.append(1)], [maker.append(1), maker.append(2)]])
    disk.flip(MESSAGE_0, made.kept[1].offset + 150)
    again = reopened(disk, ONE_SEGMENT)
    assert not again.report.cuts
    assert [hole.offset for hole in again.report.holes] == [made.kept[1].offset]
    assert again.consume.bounds(2) == (0, 1)


@pytest.mark.parametrize("how", ["half", "empty", "removed"])
def test_a_log_that_is_shorter_than_its_mark_has_lost_what_was_safe(how: str) -> None:
    maker = Maker()
    disk, _, made = written([[maker.append(1)] for _ in range(6)])
    end = len(disk.read(MESSAGE_0))
    if how == "removed":
        disk.remove(MESSAGE_0)
    else:
        disk.cut(MESSAGE_0, made.kept[3].offset if how == "half" else 0)
    store = reopened(disk, ONE_SEGMENT)
    assert not store.report.sound
    assert store.messages.end >= end, "no place is used twice"


def test_first_segments_that_nobody_let_go_are_missed() -> None:
    disk, store, maker = fresh(SMALL)
    maker.put_many(store, 20)
    store.close()
    disk.remove(MESSAGE_0)
    again = reopened(disk, SMALL)
    assert not again.report.sound and again.report.damage.startswith("damaged: ")


def test_the_mark_of_a_log_that_was_cut_on_purpose_calls_nothing_lost() -> None:
    maker = Maker()
    disk, store, made = written([[maker.append(1)] for _ in range(6)])
    store._message_segments.cut(made.kept[3].offset)
    disk.crash(1)
    store = reopened(disk, ONE_SEGMENT)
    assert store.report.sound
    assert store.messages.end == made.kept[3].offset


def test_a_damaged_mark_says_nothing() -> None:
    maker = Maker()
    disk, _, made = written([[maker.append(1)] for _ in range(3)])
    disk.flip(MARK, 17)
    disk.cut(MESSAGE_0, made.kept[2].offset + 10)
    store = reopened(disk, ONE_SEGMENT)
    assert store.report.sound
    assert store.messages.end == made.kept[2].offset


def test_the_same_bit_flip_is_corruption_once_a_checkpoint_says_that_it_was_safe() -> None:
    maker = Maker()
    disk, store, made = written([[maker.append(1)], [maker.append(1), maker.append(2)]])
    store.checkpoint()
    disk.remove(TAIL_0)  # So that the log is read again.
    disk.flip(MESSAGE_0, made.kept[1].offset + 150)
    again = reopened(disk, ONE_SEGMENT)
    assert not again.report.cuts
    assert [hole.offset for hole in again.report.holes] == [made.kept[1].offset]
    assert again.consume.bounds(1) == (0, 2)
    assert again.consume.bounds(2) == (0, 1)


def test_deciding_is_by_the_durable_mark_alone() -> None:
    gaps = [Gap(start=10, end=20, reason="x"), Gap(start=50, end=60, reason="y")]
    holes_only = decide(Scan(gaps=gaps, durable=51, end=80, bytes_read=0))
    assert holes_only.holes == gaps
    assert (holes_only.torn, holes_only.end, holes_only.new_segment) == (None, 80, False)
    torn = decide(Scan(gaps=gaps, durable=50, end=80, bytes_read=0))
    assert (torn.holes, torn.end) == (gaps[:1], 50)
    assert torn.torn is not None
    assert (torn.torn.start, torn.torn.end) == (50, 80)


def test_a_missing_or_stale_tail_checkpoint_costs_reading_and_nothing_else() -> None:
    disk, store, maker = fresh(ONE_SEGMENT)
    maker.put_many(store, 5, (1, 2))
    store.checkpoint()
    stale = disk.read(TAIL_0)
    maker.put_many(store, 5, (1, 2))
    store.checkpoint()
    whole = disk.read(TAIL_0)
    assert whole.startswith(stale)
    damaged = [b"", stale, whole[:-1], whole[: len(stale) + 10], b"x" + whole[1:], whole + b"junk"]
    for content in damaged:
        disk.place(TAIL_0, content)
        again = reopened(disk, ONE_SEGMENT)
        check_all(again, maker.kept)
        assert again.report.tail_records + again.report.scanned_records == 10
        assert again.report.sound
    disk.remove(TAIL_0)
    again = reopened(disk, ONE_SEGMENT)
    check_all(again, maker.kept)
    assert again.report.scanned_records == 10


def test_missing_and_damaged_tables_are_made_again_from_the_message_log() -> None:
    """R14: consume queues can be rebuilt from the log alone."""
    disk, store, maker = fresh()
    maker.put_many(store, 30, (1, 2, 3))
    store.checkpoint()
    tables = [name for name in disk.names(DATA / "consume") if name.endswith(".table")]
    assert len(tables) == 3
    original = {name: disk.read(DATA / "consume" / name) for name in tables}
    for name in tables:
        disk.remove(DATA / "consume" / name)
        again = reopened(disk)
        assert len(again.report.tables_rebuilt) == 1
        check_all(again, maker.kept)
        disk.flip(DATA / "consume" / name, 20)
        check_all(reopened(disk), maker.kept)
    for name in disk.names(DATA / "consume"):
        disk.remove(DATA / "consume" / name)
    again = reopened(disk)
    assert len(again.report.tables_rebuilt) == 3
    check_all(again, maker.kept)
    assert sorted(original) == [n for n in disk.names(DATA / "consume") if n.endswith(".table")]


def test_a_table_damaged_while_running_is_made_again_by_the_reader_that_finds_out() -> None:
    disk, store, maker = fresh()
    maker.put_many(store, 20)
    store.close()
    again = reopened(disk)
    disk.flip(TABLE_0, 100)  # An entry; the header and the index are whole.
    assert again.consume.entries_nowait(1, 0, rows_max=1, size_max=1) is None
    check_all(again, maker.kept)
    assert f"{TABLE_0.name}.bad" in disk.names(DATA / "quarantine")


def test_a_start_reads_what_follows_the_checkpoint_and_not_the_log() -> None:
    """R14: the amount read does not grow with the log."""
    disk, store, maker = fresh(StorageConfig(segment_batches_max=100))
    body = b"x" * 5_000
    for _ in range(450):
        maker.put(store, maker.append(body=body))
    store.checkpoint()
    for _ in range(3):
        maker.put(store, maker.append(body=body))
    again = reopened(disk, StorageConfig(segment_batches_max=100))
    assert again.report.scanned_records == 3
    assert again.messages.safe_offset > 450 * 5_000
    assert again.report.bytes_read < 60_000
    check_all(again, maker.kept)


def test_a_missing_segment_file_is_a_hole_with_the_rest_still_there() -> None:
    disk, store, maker = fresh()
    maker.put_many(store, 30)
    store.close()
    segments = disk.names(DATA / "message")
    disk.remove(DATA / "message" / segments[1])
    again = reopened(disk)
    lost_from, lost_to = int(segments[1][:20]), int(segments[2][:20])
    for append in maker.kept:
        if lost_from <= append.offset < lost_to:
            with pytest.raises(Corrupt):
                again.messages.read(append.offset, len(append.batch))
        else:
            again.messages.read(append.offset, len(append.batch))
    assert again.consume.bounds(1)[1] == maker.kept[-1].base_sequence + maker.kept[-1].count


def test_a_message_log_that_lost_its_last_segments_goes_on_after_what_was_assigned() -> None:
    disk, store, maker = fresh()
    maker.put_many(store, 30, (1, 2))
    store.close()
    ends = {topic_id: store.consume.bounds(topic_id) for topic_id in (1, 2)}
    for name in disk.names(DATA / "message")[1:]:
        disk.remove(DATA / "message" / name)
    again = reopened(disk)
    assert not again.report.sound
    for topic_id, (_, end) in ends.items():
        known = again.consume.bounds(topic_id)[1]
        assert known >= end - 8 * 3  # Tables tell all but the last segment, which had no table.
        assert Maker().put(again, Maker().append(topic_id)).appends[0].base_sequence == known
    assert again.messages.safe_offset > store.messages.safe_offset


def test_a_batch_of_a_newer_version_stops_the_start_instead_of_being_cut() -> None:
    from ternmq.batch.layout import COUNT, stamp_crc

    disk, _, maker = written(four_groups())
    content = bytearray(disk.read(MESSAGE_0))
    at = maker.kept[-1].offset
    content[at + 4] = 9
    COUNT.pack_into(content, at + 12, stamp_crc(memoryview(content)[at:]))
    disk.place(MESSAGE_0, bytes(content))
    with pytest.raises(ProtocolError, match="newer release"):
        reopened(disk, ONE_SEGMENT)
    assert disk.read(MESSAGE_0) == content


def test_what_a_failed_sync_left_in_the_page_cache_is_written_again_before_it_is_seen() -> None:
    """After a failed fsync the kernel calls the pages clean; syncing once more would lie."""
    disk, store, maker = fresh()
    maker.put(store)
    disk.faults.fail_sync(1)
    staged = store.messages.stage([maker.append(), maker.append()])
    with pytest.raises(Exception, match="simulated"):
        store.messages.write(staged)
    store.messages.abandon(staged)
    again = reopened(disk)
    assert again.consume.bounds(1) == (0, 3)
    disk.crash(seed=1)
    assert reopened(disk).consume.bounds(1) == (0, 3)


def test_the_config_of_a_test_store_is_small_enough_to_roll() -> None:
    assert SMALL.segment_batches_max == 8


def test_a_tail_file_with_a_block_missing_is_trusted_up_to_there() -> None:
    disk, store, maker = fresh(ONE_SEGMENT)
    sizes: list[int] = []
    for _ in range(3):
        maker.put_many(store, 3)
        store.checkpoint()
        sizes.append(len(disk.read(TAIL_0)))
    whole = disk.read(TAIL_0)
    disk.place(TAIL_0, whole[: sizes[0]] + whole[sizes[1] :])
    again = reopened(disk, ONE_SEGMENT)
    assert (again.report.tail_records, again.report.scanned_records) == (3, 6)
    check_all(again, maker.kept)
