"""Pages of the pull log: whole records of the safe part, snapshots left out."""

from pathlib import Path

from ternmq.storage.log.segmented_log import SegmentedLog
from ternmq.storage.pull.page import PullRow, kept_since_ms, position_at, read_page
from ternmq.storage.pull.record import PullKind, PullRecord, encode, encoded_size
from ternmq.testing.disk import SimulatedDisk


def a_log(disk: SimulatedDisk, records: list[PullRecord], *, segment_size: int) -> SegmentedLog:
    disk.mkdir(Path("/pull"))
    log = SegmentedLog(disk, Path("/pull"), segment_size=segment_size)
    for record in records:
        plan = log.plan()
        offset = plan.room(encoded_size(record))
        plan.place(encode(record, offset=offset, durable_to=0))
        log.write(plan, sync=False)
    return log


def acked(number: int, text: bytes = b"") -> PullRecord:
    return PullRecord(kind=PullKind.ACKED, group_id=7, ranges=((number, number + 1, 1),), text=text)


def all_pages(log: SegmentedLog, size_max: int) -> bytes:
    at, found = 0, b""
    while True:
        page = read_page(log, at, 0, size_max, safe=log.synced)
        if page.following == at:
            return found
        at = page.following
        found += page.records


def test_pages_of_any_size_hold_the_same_records_over_segments() -> None:
    records = [acked(n, b"x" * (n * 37 % 500)) for n in range(200)]
    log = a_log(SimulatedDisk(), records, segment_size=4096)
    log.sync()

    whole = read_page(log, 0, 0, 1 << 20, safe=log.synced)

    assert whole.following == log.end and whole.group_ids == {7}
    assert whole.records.count(b"PULL") == 200
    assert all_pages(log, 1) == all_pages(log, 3_000) == whole.records


def test_what_is_not_on_disk_yet_is_not_seen() -> None:
    log = a_log(SimulatedDisk(), [acked(1)], segment_size=4096)

    assert read_page(log, 0, 0, 1 << 20, safe=log.synced).records == b""


def test_snapshots_are_passed_over_however_long_they_are() -> None:
    snapshot = PullRecord(kind=PullKind.SNAPSHOT, group_id=7, text=bytes(3 << 20))
    log = a_log(SimulatedDisk(), [acked(1), snapshot, acked(2)], segment_size=1 << 30)
    log.sync()

    assert all_pages(log, 1).count(b"PULL") == 2


def test_damage_is_passed_over() -> None:
    log = a_log(SimulatedDisk(), [acked(n) for n in range(10)], segment_size=1 << 20)
    log.sync()
    size = encoded_size(acked(0))
    file = log.file(0)
    file.pwritev([b"\xff\xff"], 4 * size + 60)

    page = read_page(log, 0, 0, 1 << 20, safe=log.synced)

    assert page.following == log.end
    assert page.records.count(b"PULL") == 9
    assert page.damaged == [(4 * size, 5 * size)], "and named"


def of_lane(lane_id: int, at_ms: int, *ranges: tuple[int, int, int]) -> PullRecord:
    return PullRecord(
        kind=PullKind.ACKED, group_id=lane_id, lane_id=lane_id, at_ms=at_ms, ranges=ranges
    )


def test_of_one_row_only_the_records_that_touch_it_are_read_in_parts() -> None:
    others = [of_lane(2, 0, (5, 6, 1)), of_lane(1, 0, (6, 9, 1)), of_lane(1, 0, (0, 5, 1))]
    touching = [of_lane(1, 0, (0, 1, 1), (5, 6, 2)), of_lane(1, 0, (0, 100, 3))]
    reset = PullRecord(kind=PullKind.RESET, group_id=1, lane_id=1, ranges=((9, 9, 0),))
    records = [*others * 200, touching[0], *others * 2_000, reset, touching[1]]
    log = a_log(SimulatedDisk(), records, segment_size=1 << 20)
    log.sync()

    at, found, parts = 0, b"", 0
    while at < log.end:
        page = read_page(log, at, 0, 1 << 17, safe=log.synced, row=PullRow(1, 5))
        at, found, parts = page.following, found + page.records, parts + 1

    assert found.count(b"PULL") == 3
    assert parts > 3, "each part is bounded by what it looks at, not by what it finds"


def test_a_look_begins_in_the_last_segment_before_a_time() -> None:
    records = [of_lane(1, minute * 60_000, (0, 1, 1)) for minute in range(500)]
    log = a_log(SimulatedDisk(), records, segment_size=4096)
    log.sync()

    for minute in (0, 1, 250, 499, 10_000):
        position = position_at(log, minute * 60_000)
        page = read_page(log, position, 0, 1 << 20, safe=log.synced)
        assert page.records.count(b"PULL") >= 500 - minute, "nothing of that time is left out"
    assert position_at(log, 499 * 60_000) == log.bases[-1]
    assert kept_since_ms(log) == 0
    log.drop_before(log.bases[3])
    assert kept_since_ms(log) > 0
