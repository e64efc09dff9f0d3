"""What groups did: staged, written, replayed, trimmed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from ternmq.core.errors import BadRequest, DiskFailed, DiskFull, TooLarge
from ternmq.storage.config import StorageConfig
from ternmq.storage.pull.record import (
    RECORD_SIZE_MAX,
    PullFormat,
    PullKind,
    PullRecord,
    cut_record,
    decode,
    encode,
)
from ternmq.testing.disk import SimulatedDisk
from tests.unit.storage.builders import (
    DATA,
    PULL_0,
    TurnedClock,
    fresh,
    open_store,
    put_pulls,
    reopened,
)

SMALL_SEGMENTS = StorageConfig(pull_segment_size=64 * 1024)


def acked(number: int, group_id: int = 5, text: bytes = b"") -> PullRecord:
    return PullRecord(
        kind=PullKind.ACKED,
        group_id=group_id,
        lane_id=1,
        at_ms=7,
        session=bytes(range(16)),
        lease=9,
        ranges=((number, number + 10, 1), (number + 20, number + 30, 2)),
        text=text,
    )


def made(group_id: int) -> PullRecord:
    return PullRecord(kind=PullKind.GROUP_MADE, group_id=group_id, lane_id=1, argument=-1)


def snapshot(group_id: int, text: bytes = b"state") -> PullRecord:
    return PullRecord(kind=PullKind.SNAPSHOT, group_id=group_id, lane_id=1, text=text)


@pytest.mark.parametrize("kind", list(PullKind))
def test_every_kind_of_record_comes_back_as_it_was(kind: PullKind) -> None:
    record = PullRecord(
        kind=kind,
        group_id=2**63,
        lane_id=2**40,
        at_ms=-1,
        session=b"s" * 16,
        lease=2**64 - 1,
        argument=-5,
        ranges=((0, 2**64 - 1, 2**32 - 1),),
        text=b"odd",
    )
    packed = encode(record, offset=80, durable_to=8)
    assert len(packed) % 8 == 0
    assert PullFormat().check(memoryview(packed), 80) == 8
    assert decode(memoryview(packed)) == record


def test_the_replay_equals_what_was_committed() -> None:
    disk, store, _ = fresh(SMALL_SEGMENTS)
    records = [made(5)]
    records += [acked(number, text=b"x" * (number % 300)) for number in range(1000)]
    offsets: list[int] = []
    for number, record in enumerate(records):
        offsets += put_pulls(store, record, sync=number % 10 == 0)
    assert len(disk.names(DATA / "pull")) > 2
    assert list(store.pulls.replay()) == list(zip(offsets, records, strict=True))
    store.close()
    assert list(reopened(disk, SMALL_SEGMENTS).pulls.replay()) == list(
        zip(offsets, records, strict=True)
    )


def test_decisions_survive_a_power_cut_and_progress_survives_as_a_prefix() -> None:
    for seed in range(30):
        disk, store, _ = fresh()
        records = [acked(number) for number in range(5)]
        put_pulls(store, *records[:3], sync=True)
        put_pulls(store, *records[3:], sync=False)
        disk.crash(seed)
        found = [record for _, record in open_store(disk).pulls.replay()]
        assert len(found) >= 3
        assert found == records[: len(found)]


def test_progress_is_flushed_when_it_has_waited_long_enough() -> None:
    disk = SimulatedDisk()
    clock = TurnedClock()
    store = open_store(disk, clock=clock)
    put_pulls(store, acked(1), sync=False)
    store.pulls.sync_due()
    assert store.pulls.synced_offset == 0
    clock.seconds += 1
    store.pulls.sync_due()
    assert store.pulls.synced_offset == store.pulls.safe_offset > 0


def test_a_pull_log_cut_at_any_byte_keeps_every_whole_record_before_it() -> None:
    disk, store, _ = fresh()
    records = [acked(number, text=b"t" * number) for number in range(4)]
    ends = [*put_pulls(store, *records)[1:], store.pulls.safe_offset]
    content = disk.read(PULL_0)
    for size in range(len(content) + 1):
        copy = SimulatedDisk()
        copy.place(PULL_0, content[:size])
        again = reopened(copy)
        whole = sum(end <= size for end in ends)
        assert [record for _, record in again.pulls.replay()] == records[:whole]
        assert again.report.sound


def test_a_damaged_record_that_was_safe_is_a_hole_and_the_rest_is_replayed() -> None:
    disk, store, _ = fresh()
    first = put_pulls(store, acked(1))[0]
    put_pulls(store, acked(2))
    put_pulls(store, acked(3))
    content = disk.read(PULL_0)
    for at in range(first, len(content) // 3):
        copy = SimulatedDisk()
        copy.place(PULL_0, content)
        copy.flip(PULL_0, at)
        again = reopened(copy)
        assert [hole.log for hole in again.report.holes] == ["pull"]
        assert [record for _, record in again.pulls.replay()] == [acked(2), acked(3)]
        put_pulls(again, acked(4))


def damaged_at_rest() -> tuple[SimulatedDisk, int]:
    """A closed store, and a bit flipped in what its checkpoint covers."""
    disk, store, _ = fresh()
    offsets = put_pulls(store, made(1), acked(1, group_id=1), acked(2, group_id=1))
    store.close()
    return disk, offsets[1]


def test_damage_below_the_checkpoint_is_quarantined_once_and_reported_at_every_start() -> None:
    disk, offset = damaged_at_rest()
    content = disk.read(PULL_0)
    disk.flip(PULL_0, offset + 100)
    stem = f"pull-{offset:020d}-corrupt"
    bad, story = DATA / "quarantine" / f"{stem}.bad", DATA / "quarantine" / f"{stem}.json"
    for start in range(3):
        again = reopened(disk)
        assert again.report.sound, "only reading it shows the damage"
        found = [record for _, record in again.pulls.replay()]
        assert found == [made(1), acked(2, group_id=1)]
        hole = again.report.holes[0]
        assert (hole.log, hole.offset, hole.copied_to) == ("pull", offset, str(bad))
        assert again.report.notes == [], "the group is there"
        if start == 0:
            kept = disk.read(bad)
            assert len(kept) == hole.size
            assert sum(a != b for a, b in zip(kept, content[offset:], strict=False)) == 1
            disk.place(bad, b"looked at by a person")
        assert disk.read(bad) == b"looked at by a person", "not copied a second time"
        assert disk.exists(story)
        again.close()


def test_a_larger_hole_at_the_same_place_is_copied_again() -> None:
    disk, offset = damaged_at_rest()
    disk.flip(PULL_0, offset + 100)
    first = reopened(disk)
    list(first.pulls.replay())
    first.close()
    size = first.report.holes[0].size
    disk.flip(PULL_0, offset + size + 100)
    second = reopened(disk)
    list(second.pulls.replay())
    assert len(disk.read(Path(second.report.holes[0].copied_to))) == 2 * size


def test_a_copy_that_failed_is_made_at_the_next_start() -> None:
    disk, offset = damaged_at_rest()
    disk.flip(PULL_0, offset + 100)
    first = reopened(disk)
    disk.faults.fail_write(1, "full")
    list(first.pulls.replay())
    assert first.report.holes[0].copied_to == ""
    first.close()
    second = reopened(disk)
    list(second.pulls.replay())
    assert disk.exists(Path(second.report.holes[0].copied_to))


def test_a_group_whose_birth_is_damaged_is_named() -> None:
    disk, store, _ = fresh()
    list(store.pulls.replay())
    put_pulls(store, made(1), made(2), made(3), acked(1, group_id=2), acked(1, group_id=3))
    birth = [offset for offset, _ in store.pulls.replay()][1]
    store.close()
    disk.flip(PULL_0, birth + 60)
    again = reopened(disk)
    with capture_logs() as logs:
        list(again.pulls.replay())
    errors = [line for line in logs if line["log_level"] == "error"]
    assert [line.get("offset") for line in errors] == [birth, None]
    assert (errors[1]["group_id"], errors[1]["damaged_at"]) == (2, [birth])
    assert again.report.notes == ["group 2 cannot be rebuilt from the pull log"]


def test_a_survey_reads_the_log_once_and_tells_its_ids() -> None:
    disk, store, _ = fresh()
    put_pulls(store, made(4), made(9), acked(1, group_id=4))
    again = reopened(disk)
    survey = again.pulls.survey()
    assert (survey.group_ids, survey.lane_ids) == ({4, 9}, {1})
    disk.place(PULL_0, b"")
    assert len(list(again.pulls.replay())) == 3


def test_a_full_disk_refuses_records_and_later_ones_go_in() -> None:
    disk, store, _ = fresh()
    put_pulls(store, acked(1))
    disk.faults.fail_write(1, "full")
    with pytest.raises(DiskFull):
        put_pulls(store, acked(2), sync=False)
    assert store.pulls.failed is None
    put_pulls(store, acked(3))
    assert [record for _, record in store.pulls.replay()] == [acked(1), acked(3)]


def test_a_failed_sync_of_the_pull_log_is_final_for_it_and_not_for_the_messages() -> None:
    disk, store, maker = fresh()
    disk.faults.fail_sync(1)
    with pytest.raises(DiskFailed):
        put_pulls(store, acked(1), sync=True)
    with pytest.raises(DiskFailed, match="restart"):
        store.pulls.stage([acked(2)])
    maker.put(store)
    assert store.messages.failed is None


def test_segments_go_when_every_living_group_has_a_later_snapshot() -> None:
    disk, store, _ = fresh(SMALL_SEGMENTS)
    list(store.pulls.replay())
    put_pulls(store, made(1), made(2))

    def fill() -> None:
        for number in range(900):
            put_pulls(store, acked(number, group_id=1), sync=False)

    fill()
    put_pulls(store, snapshot(1))
    store.checkpoint()
    assert PULL_0.name in disk.names(DATA / "pull"), "group 2 still needs its first record"
    assert store.pulls.pinning(10) == [(2, 1), (1, 1)][: len(store.pulls.pinning(10))]
    put_pulls(store, snapshot(2))
    fill()
    put_pulls(store, snapshot(1), snapshot(2))
    kept_from = store.pulls.replay_from()
    store.checkpoint()
    assert PULL_0.name not in disk.names(DATA / "pull")
    again = reopened(disk, SMALL_SEGMENTS)
    replayed = list(again.pulls.replay())
    assert replayed[0] == (kept_from, snapshot(1))
    assert replayed[1][1] == snapshot(2)


def test_a_deleted_group_holds_no_segment() -> None:
    disk, store, _ = fresh(SMALL_SEGMENTS)
    list(store.pulls.replay())
    put_pulls(store, made(1), made(2))
    for number in range(900):
        put_pulls(store, acked(number, group_id=1), sync=False)
    put_pulls(store, PullRecord(kind=PullKind.GROUP_DELETED, group_id=2), snapshot(1))
    store.checkpoint()
    assert PULL_0.name not in disk.names(DATA / "pull")


def test_late_records_of_a_deleted_group_hold_no_segment() -> None:
    disk, store, _ = fresh(SMALL_SEGMENTS)
    list(store.pulls.replay())
    put_pulls(store, made(1), made(2))
    put_pulls(store, PullRecord(kind=PullKind.GROUP_DELETED, group_id=2), acked(1, group_id=2))
    for number in range(900):
        put_pulls(store, acked(number, group_id=1), sync=False)
    put_pulls(store, snapshot(1))
    assert store.pulls.pinning(10) in ([], [(1, 1)])
    store.checkpoint()
    assert PULL_0.name not in disk.names(DATA / "pull")
    again = reopened(disk, SMALL_SEGMENTS)
    list(again.pulls.replay())
    assert again.pulls.replay_from() == store.pulls.replay_from()


def test_nothing_is_trimmed_before_the_replay_has_run() -> None:
    disk, store, _ = fresh(SMALL_SEGMENTS)
    for number in range(900):
        put_pulls(store, acked(number), sync=False)
    put_pulls(store, snapshot(5))
    store.checkpoint()
    assert PULL_0.name in disk.names(DATA / "pull")


def test_a_lost_checkpoint_means_replaying_everything_that_is_kept() -> None:
    disk, store, _ = fresh()
    list(store.pulls.replay())
    put_pulls(store, made(1), acked(1, group_id=1), snapshot(1), acked(2, group_id=1))
    store.close()
    assert [r.kind for _, r in reopened(disk).pulls.replay()] == [PullKind.SNAPSHOT, PullKind.ACKED]
    disk.remove(DATA / "checkpoint")
    assert len(list(reopened(disk).pulls.replay())) == 4


def test_a_cut_names_the_lane_its_end_and_what_is_void() -> None:
    record = cut_record(group_id=3, lane_id=4, epoch=5, end=10, old_end=20, at_ms=6)
    assert (record.kind, record.argument, record.ranges) == (PullKind.CUT, 5, ((10, 20, 0),))


def test_a_record_over_the_limit_is_refused_before_anything_is_staged() -> None:
    _, store, _ = fresh()
    with pytest.raises(TooLarge):
        store.pulls.stage([snapshot(1, b"x" * RECORD_SIZE_MAX)])
    put_pulls(store, acked(1))


@pytest.mark.parametrize(
    "changed",
    [
        {"lease": -1},
        {"lease": 2**64},
        {"argument": 2**63},
        {"at_ms": -(2**63) - 1},
        {"group_id": -1},
        {"lane_id": 2**64},
        {"ranges": ((-1, 5, 1),)},
        {"ranges": ((0, 2**64, 1),)},
        {"ranges": ((0, 5, 2**32),)},
        {"session": b"short"},
    ],
)
def test_numbers_that_do_not_fit_are_refused_and_the_next_record_goes_in(
    changed: dict[str, Any],
) -> None:
    """They come from peers: a bad request, not a bug."""
    _, store, _ = fresh()
    with pytest.raises(BadRequest):
        store.pulls.stage([acked(1), replace(acked(2), **changed)])
    put_pulls(store, acked(3))
    assert [record for _, record in store.pulls.replay()] == [acked(3)]


def test_damage_that_a_reader_meets_is_named_once_counted_and_passed_over() -> None:
    disk, store, _ = fresh()
    offsets = put_pulls(store, *(acked(number) for number in range(10)))
    path = DATA / "pull" / disk.names(DATA / "pull")[0]
    disk.open(path, create=False).pwritev([b"\xff"], offsets[4] + 40)
    with capture_logs() as logs:
        pages = [store.pulls.page(0, 0, 1 << 20) for _ in range(2)]

    assert all(page.records.count(b"PULL") == 9 for page in pages)
    assert pages[0].damaged == [(offsets[4], offsets[5])]
    assert store.pulls.rotten == {offsets[4]: offsets[5]}
    assert [line["event"] for line in logs] == ["delivery records are damaged; passed over"]


def test_a_position_that_was_made_up_is_no_damage() -> None:
    """A client may ask from anywhere: that says nothing about the disk, and fills no log."""
    disk, store, _ = fresh()
    offsets = put_pulls(store, *(acked(number) for number in range(10)))
    with capture_logs() as logs:
        for within in range(1, offsets[1]):
            store.pulls.page(within, 0, 1 << 20)
    assert (store.pulls.rotten, logs) == ({}, [])

    path = DATA / "pull" / disk.names(DATA / "pull")[0]
    first = store.pulls.page(0, offsets[4], 1 << 20)
    disk.open(path, create=False).pwritev([b"\xff"], offsets[4] + 40)
    store.pulls.page(first.following, 0, 1 << 20)
    assert store.pulls.rotten == {offsets[4]: offsets[5]}
