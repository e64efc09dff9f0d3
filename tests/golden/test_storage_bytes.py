"""Golden bytes of what storage keeps beside the batch. They change only with a version number."""

from pathlib import Path

import numpy as np
import pytest
from crc32c import crc32c

from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.batch.half import (
    HalfDecision,
    HalfInfo,
    PlacedHalf,
    pack_decision,
    pack_info,
    read_decision,
    read_info,
)
from ternmq.batch.view import BatchView
from ternmq.core.ids import ProducerId
from ternmq.storage import bootstrap
from ternmq.storage.bootstrap import BootstrapState
from ternmq.storage.consume.entry import (
    ENTRY,
    RECORD,
    ConsumeEntry,
    Location,
    check_entries,
    checksums,
)
from ternmq.storage.consume.runs import pack
from ternmq.storage.consume.table_file import INDEX, Contents, Table, write_table
from ternmq.storage.consume.tail_file import pack_block, read_tail
from ternmq.storage.files import checkpoint, log_start, member
from ternmq.storage.files.checkpoint import Checkpoint
from ternmq.storage.index.index_file import IDS, KEYS, IndexFile, write_index
from ternmq.storage.index.rows import PLACE, IndexColumns, hash_values, ranges_of
from ternmq.storage.log import leader_epochs
from ternmq.storage.log.leader_epochs import Epochs, EpochStart, LeaderEpochs
from ternmq.storage.messages.producers import ProducerTable, StoredBatch
from ternmq.storage.messages.transactions import TransactionTable
from ternmq.storage.pull import record as pull_record
from ternmq.storage.pull.record import PullKind, PullRecord
from ternmq.testing.disk import SimulatedDisk

GOLDEN = Path(__file__).parent

FIRST = ConsumeEntry(100, 4096, 512, 7, 1_700_000_000_123, 0xF0F0, 9, Location.MESSAGE_LOG)
SECOND = ConsumeEntry(107, 5000, 304, 1, 1_700_000_000_456, 0, 0, Location.MESSAGE_LOG)
LOST = ConsumeEntry(3, 9001, 0, 40, 1_700_000_000_789, 0, 0, Location.LOST)


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / name).read_text())


def records() -> bytes:
    first = RECORD.pack(42, *FIRST, 0, 11, 22, 33)
    return first + RECORD.pack(42, *SECOND, 0, 11, 22, 40)


def table() -> bytes:
    disk = SimulatedDisk()
    path = Path("/consume/00000000000000004096.table")
    disk.mkdir(path.parent)
    topics: list[tuple[int, bytes | bytearray]] = [
        (42, pack(FIRST) + pack(SECOND)),
        (77, pack(LOST)),
    ]
    write_table(disk, path, Contents(base=4096, end=5304, topics=topics, before={42: 100, 5: 6}))
    assert Table(disk, path).entry_count == 3
    return disk.read(path)


def pull() -> bytes:
    record = PullRecord(
        kind=PullKind.RETRY,
        group_id=0x11,
        lane_id=0x22,
        at_ms=0x33,
        session=bytes(range(16)),
        lease=0x44,
        argument=0x55,
        ranges=((1, 2, 3), (10, 20, 4)),
        text=b"why",
    )
    return bytes(pull_record.encode(record, offset=0x1000, durable_to=0x800))


def marks() -> bytes:
    return checkpoint.encode(
        Checkpoint(
            clean=True,
            epoch=3,
            message_durable=5304,
            consume_covered=5304,
            pull_durable=160,
            pull_replay_from=96,
            stored_at_ms=1_700_000_000_456,
            message_safe=5000,
            pull_safe=128,
        )
    )


def producers() -> bytes:
    windows = ProducerTable()
    windows.remember((11, 22), 33, 7, StoredBatch(42, 100, 1_700_000_000_123))
    return windows.snapshot(covers=4096)


def owned_producers() -> bytes:
    """Whose they are stands in what was spare."""
    windows = ProducerTable()
    origin = Origin(topic="orders", app="shop", producer=ProducerId(11, 22))
    batch = encode_messages([Outgoing(body=b"x")], origin=origin, first_sequence=33)
    windows.remember((11, 22), 33, 7, StoredBatch(42, 100, 1_700_000_000_123), batch)
    return windows.snapshot(covers=4096)


EPOCHS = Epochs(
    messages=LeaderEpochs((EpochStart(0, 0, own=False), EpochStart(3, 4096, own=True))),
    pulls=LeaderEpochs((EpochStart(3, 96, own=True),)),
    message_cut=5304,
)


BASE = BootstrapState(
    message_start=4096, pull_start=96, floor=b"floor", producers=b"producers", halves=b"halves"
)


def base() -> bytes:
    return bootstrap.encode(BASE)


def epochs() -> bytes:
    return leader_epochs.encode(EPOCHS)


def index() -> bytes:
    disk = SimulatedDisk()
    path = Path("/index/00000000000000004096.index")
    disk.mkdir(path.parent)
    columns = IndexColumns(
        ranges_of(records()),
        np.array([(hash_values([b"id"])[0], 42, 107)], dtype=PLACE),
        np.array([(7, 42, 101), (hash_values([b"key"])[0], 42, 100)], dtype=PLACE),
    )
    times = (FIRST.stored_at_ms, SECOND.stored_at_ms)
    write_index(disk, path, span=(4096, 5304), times=times, columns=columns)
    return disk.read(path)


PLACED = PlacedHalf(
    offset=4096,
    size=512,
    topic_id=42,
    sequence=100,
    count=7,
    tag_bloom=0xF0F0,
    priority=9,
    searchable=True,
    producer_start=11,
    producer_random=22,
    first_sequence=33,
)
HALF_INFO = HalfInfo(transaction=bytes(range(16)), first_check_ms=6_000, checks_max=15)


UNFENCED = HalfInfo(name="query:7", attempt=2**32 - 1, expires_ms=60_000, fenced=False)


def control() -> bytes:
    decision = HalfDecision(kind="commit", transactions=[HALF_INFO.key], placed=[PLACED])
    origin = Origin(topic="%control", app="%control", producer=ProducerId(0, 0))
    return bytes(pack_decision(decision, origin=origin, number=0, at_ms=1_700_000_000_123))


def half() -> bytes:
    origin = Origin(topic="orders", app="shop", producer=ProducerId(11, 22))
    rows = [Outgoing(body=b"body", born_at_ms=33)]
    packed = pack_info(HALF_INFO)
    return bytes(encode_messages(rows, origin=origin, first_sequence=33, transaction=packed))


def halves() -> bytes:
    table = TransactionTable(segment_of=lambda offset: offset // 4096 * 4096)
    table.add(HALF_INFO, "shop", PLACED, 1_700_000_000_123)
    name = HalfInfo(name="job", attempt=2, expires_ms=60_000)
    table.add(name, "spark", PLACED, 1_700_000_000_123)
    decision = HalfDecision(kind="commit", transactions=[name.key], placed=[PLACED])
    table.decide(decision, 1_700_000_000_456, offset=8192)
    table.add(UNFENCED, "spark", PLACED, 1_700_000_000_456)
    return table.snapshot(covers=5304)


FILES = {
    "consume_entry_v1.hex": lambda: table()[80:128],
    "consume_tail_v1.hex": lambda: pack_block(4096, 5304, records()),
    "consume_table_v1.hex": table,
    "pull_record_v1.hex": pull,
    "checkpoint_v2.hex": marks,
    "epochs_v1.hex": epochs,
    "base_v1.hex": base,
    "producers_v1.hex": producers,
    "index_v1.hex": index,
    "control_v1.hex": control,
    # A field was added at the end; what was written before is read below.
    "half_later_v1.hex": half,
    "halves_app_v2.hex": halves,
    "producers_owner_v1.hex": owned_producers,
}


@pytest.mark.parametrize("name", FILES)
def test_the_bytes_are_those_of_their_version(name: str) -> None:
    assert FILES[name]() == golden(name)


def test_an_entry_has_its_fields_where_the_table_says() -> None:
    entry = golden("consume_entry_v1.hex")
    assert len(entry) == 48
    assert entry[0:8] == (100).to_bytes(8, "little")
    assert entry[8:16] == (4096).to_bytes(8, "little")
    assert entry[16:24] == (512).to_bytes(4, "little") + (7).to_bytes(4, "little")
    assert entry[24:32] == (1_700_000_000_123).to_bytes(8, "little")
    assert entry[32:40] == (0xF0F0).to_bytes(8, "little")
    assert entry[40:44] == bytes([9, 0, 0, 0])
    checksum = crc32c(entry[:44], crc32c((42).to_bytes(8, "little")))
    assert entry[44:] == checksum.to_bytes(4, "little")
    check_entries(42, entry)


def test_checksums_of_many_entries_at_once_are_plain_crc32c() -> None:
    rows = np.random.default_rng(1).integers(0, 256, (100, 48), dtype=np.uint8)
    ids = np.arange(100, dtype=np.int64) * 2**40
    for row, topic_id, found in zip(rows, ids, checksums(ids, rows), strict=True):
        assert found == crc32c(row[:44].tobytes(), crc32c(int(topic_id).to_bytes(8, "little")))


def test_a_golden_tail_and_table_are_read_back() -> None:
    tail = read_tail(golden("consume_tail_v1.hex"), 4096)
    assert (tail.end, tail.size) == (5304, len(golden("consume_tail_v1.hex")))
    assert [fields[1] for fields in RECORD.iter_unpack(tail.records)] == [100, 107]
    content = golden("consume_table_v1.hex")
    index = np.frombuffer(content, dtype=INDEX, offset=80 + 3 * 48)
    assert index.tolist() == [(5, 0, 0, 6, 6), (42, 0, 2, 100, 108), (77, 2, 1, 3, 43)]
    assert ENTRY.unpack_from(content, 80 + 48)[0] == 107


def test_a_golden_pull_record_is_read_back() -> None:
    packed = golden("pull_record_v1.hex")
    assert packed[:4] == b"PULL"
    assert pull_record.PullFormat().check(memoryview(packed), 0x1000) == 0x800
    assert pull_record.decode(memoryview(packed)).text == b"why"


def test_golden_checkpoint_and_producers_are_read_back() -> None:
    now = checkpoint.decode(golden("checkpoint_v2.hex"))
    assert (now.pull_replay_from, now.message_safe, now.pull_safe) == (96, 5000, 128)
    old = checkpoint.decode(golden("checkpoint_v1.hex"))  # All that was durable was safe.
    assert (old.pull_replay_from, old.message_safe, old.pull_safe) == (96, 5304, 160)
    windows = ProducerTable()
    assert windows.restore(golden("producers_v1.hex")) == 4096
    assert windows.find((11, 22), 33, 7) == (42, 100, 1_700_000_000_123)
    assert windows.is_of((11, 22), "anybody"), "of before it was kept"
    assert windows.restore(golden("producers_owner_v1.hex")) == 4096
    assert windows.is_of((11, 22), "shop")
    assert not windows.is_of((11, 22), "anybody")


def test_kinds_of_pull_records_keep_their_numbers() -> None:
    assert {kind.name: kind.value for kind in PullKind} == {
        "HANDED_OUT": 1,
        "ACKED": 2,
        "RETURNED": 3,
        "STARTED": 4,
        "EXPIRED": 5,
        "SKIPPED": 6,
        "FILTERED": 7,
        "LOST": 8,
        "KILLED": 9,
        "STOPPED": 10,
        "EXTENDED": 11,
        "RETRY": 16,
        "DEAD": 17,
        "CONFIRM": 18,
        "REDRIVE": 19,
        "GROUP_MADE": 32,
        "GROUP_DELETED": 33,
        "RESET": 34,
        "PAUSE": 35,
        "RESUME": 36,
        "SETTINGS": 37,
        "CUT": 48,
        "SNAPSHOT": 64,
    }


def test_a_golden_index_is_read_back() -> None:
    disk = SimulatedDisk()
    path = Path("/index/00000000000000004096.index")
    disk.mkdir(path.parent)
    disk.write_atomic(path, golden("index_v1.hex"))
    file = IndexFile(disk, path)
    assert (file.base, file.end, file.counts) == (4096, 5304, (2, 1, 2))
    opened = file.open()
    guide = file.load_guide(opened)
    [found] = file.with_hash(opened, guide, IDS, int(hash_values([b"id"])[0]))
    assert found.tolist()[1:] == (42, 107)
    [found] = file.with_hash(opened, guide, KEYS, 7)
    assert found.tolist()[1:] == (42, 101)
    producer = int(ranges_of(records())["hash"][0])
    [found] = file.range_with(opened, guide, producer, 39)
    assert found.tolist()[1:5] == (33, 42, 100, 7)
    assert not len(file.range_with(opened, guide, producer, 41))


def test_the_base_epochs_and_member_files() -> None:
    assert leader_epochs.decode(golden("epochs_v1.hex")) == EPOCHS
    assert bootstrap.decode(golden("base_v1.hex")) == BASE
    known = member.MemberRecord("0123456789abcdef", 7, b"how it stood")
    assert member.encode(known) == golden("member_v2.hex")
    damaged = known._replace(damaged=True)
    assert member.decode(member.encode(damaged), Path("member")) == damaged
    assert member.encode(damaged)[12:16] == b"\x01\x00\x00\x00"
    for name, record in (("member_v1.hex", b""), ("member_v2.hex", b"how it stood")):
        found = member.decode(golden(name), Path("member"))
        assert found == ("0123456789abcdef", 7, record, False)


def test_the_floor_file() -> None:
    known = log_start.LogStart(5304, {42: 108, 5: 6})

    assert log_start.encode(known) == golden("floor_v1.hex")
    assert log_start.decode(golden("floor_v1.hex")) == known


def test_golden_half_and_control_batches_are_read_back() -> None:
    decision = read_decision(BatchView(golden("control_v1.hex")))
    assert (decision.kind, decision.placed) == ("commit", [PLACED])
    assert decision.transactions == [b"T" + bytes(range(16))]
    assert read_info(BatchView(golden("half_v1.hex"))) == HALF_INFO
    assert read_info(BatchView(golden("half_fenced_v1.hex"))) == HALF_INFO
    assert read_info(BatchView(golden("half_later_v1.hex"))) == HALF_INFO
    older = ("halves_v1.hex", "halves_fenced_v1.hex", "halves_v2.hex", "halves_later_v2.hex")
    for name in (*older, "halves_app_v2.hex"):
        table = TransactionTable()
        assert table.restore(golden(name)) == 5304
        assert table.open[HALF_INFO.key].halves == [PLACED]
        assert table.open[HALF_INFO.key].info.fenced
        assert list(table.attempts("job")) == [2]
        assert table.attempts("job")[2].app == ("" if name in older else "spark")
    assert table.open[UNFENCED.key].info == UNFENCED
    assert table.cross_segment.firsts(8192) == {PLACED.topic_id: PLACED.sequence + PLACED.count}
