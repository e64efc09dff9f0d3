"""Golden bytes of what a delay server keeps. They change only with a version number."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from ternmq.core.errors import Corrupt
from ternmq.delay.formats import checkpoint, journal_record
from ternmq.delay.formats import decision as decision_format
from ternmq.delay.formats.checkpoint import DelayCheckpoint, KnownHour, KnownTopic
from ternmq.delay.formats.decision import Decision, DecisionKind, DispatchFormat
from ternmq.delay.formats.journal_record import JournalFormat
from ternmq.delay.formats.paths import hour_name, hours_in

GOLDEN = Path(__file__).parent

DECISIONS = {
    "delay_intent_v1.hex": Decision(
        kind=DecisionKind.INTENT,
        at_ms=0x11,
        topic_id=0x22,
        rows=np.array([1, 5, 9], np.uint32),
        producer=(0x800000000033, 0x44),
        first_sequence=0x55,
        group="main",
    ),
    "delay_intent_ranges_v1.hex": Decision(
        kind=DecisionKind.INTENT,
        at_ms=0x11,
        topic_id=0x22,
        rows=np.array([3, 4, 5, 6, 7, 8, 20, 21, 22], np.uint32),
        producer=(0x800000000033, 0x44),
        first_sequence=0x55,
        group="main",
    ),
    "delay_done_v1.hex": Decision(kind=DecisionKind.DONE, at_ms=0x11, value=0x66),
    "delay_released_v1.hex": Decision(kind=DecisionKind.RELEASED, at_ms=0x11, value=0x66),
    "delay_cancelled_v1.hex": Decision(
        kind=DecisionKind.CANCELLED, at_ms=0x11, topic_id=0x22, rows=np.array([7], np.uint32)
    ),
    "delay_moved_v1.hex": Decision(
        kind=DecisionKind.MOVED,
        at_ms=0x11,
        topic_id=0x22,
        rows=np.array([7], np.uint32),
        value=0x77,
    ),
}

CHECKPOINT = DelayCheckpoint(
    clean=True,
    hour_ms=3_600_000,
    wal_durable=1,
    scheduled=2,
    stored_at_ms=3,
    hours=[
        KnownHour(
            start=4,
            length=5,
            rows=6,
            wal_offset=7,
            wal_pieces=8,
            next_due=9,
            topics=[(10, 11)],
            decided=17,
        )
    ],
    topics=[KnownTopic(id=12, name="t", accepted=13, dispatched=14, cancelled=15)],
    dropping=[16],
    taken=[(18, 19, 20)],
    decided_to=21,
    decision_safe=22,
    begun=23,
    gone_before=24,
    hour_floor=25,
)

JOURNAL = {
    "delay_journal_intent_v1.hex": DECISIONS["delay_intent_v1.hex"],
    "delay_journal_gone_v1.hex": Decision(kind=DecisionKind.GONE, at_ms=0x11, value=0x66),
    "delay_journal_begun_v1.hex": Decision(
        kind=DecisionKind.BEGUN, at_ms=0x11, value=3_600_000, first_sequence=7
    ),
}


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / name).read_text())


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_has_these_bytes(name: str) -> None:
    decision = DECISIONS[name]
    record = decision_format.encode(decision, offset=64, durable_to=32)

    assert record == golden(name)
    form = DispatchFormat()
    assert form.size(memoryview(record)) == len(record)
    assert form.check(memoryview(record), 64) == 32
    back = decision_format.decode(record)
    assert back.rows.tolist() == decision.rows.tolist()
    for field in ("kind", "at_ms", "topic_id", "producer", "first_sequence", "value", "group"):
        assert getattr(back, field) == getattr(decision, field)


@pytest.mark.parametrize("name", DECISIONS)
def test_a_flipped_bit_anywhere_is_noticed(name: str) -> None:
    record = golden(name)
    form = DispatchFormat()
    for at in range(len(record)):
        broken = bytearray(record)
        broken[at] ^= 4
        with pytest.raises(Corrupt):
            form.check(memoryview(broken)[: form.size(memoryview(broken))], 64)


@pytest.mark.parametrize("name", JOURNAL)
def test_a_record_of_the_journal_has_these_bytes(name: str) -> None:
    decision = JOURNAL[name]
    record = journal_record.pack(
        decision, hour=0x88, place=64, offset=4096, durable_to=2048, scheduled=0x99
    )

    assert record == golden(name)
    form = JournalFormat()
    assert form.size(memoryview(record)) == len(record)
    assert form.check(memoryview(record), 4096) == 2048
    noted = journal_record.parse(memoryview(record))
    assert (noted.offset, noted.end, noted.hour) == (4096, 4096 + len(record), 0x88)
    assert (noted.scheduled, noted.kind, noted.place) == (0x99, decision.kind, 64)
    assert bytes(noted.record) == decision_format.encode(decision, offset=64, durable_to=0)
    for at in range(len(record)):
        broken = bytearray(record)
        broken[at] ^= 4
        with pytest.raises(Corrupt):
            form.check(memoryview(broken)[: form.size(memoryview(broken))], 4096)


def test_a_checkpoint_has_these_bytes() -> None:
    assert checkpoint.encode(CHECKPOINT) == golden("delay_checkpoint_v1_journal.hex")
    assert checkpoint.decode(checkpoint.encode(CHECKPOINT)) == CHECKPOINT


def test_a_checkpoint_of_before_it_said_how_far_decisions_were_is_read() -> None:
    (hour,) = CHECKPOINT.hours
    taken = msgspec.structs.replace(
        CHECKPOINT, decided_to=0, decision_safe=0, begun=0, gone_before=0, hour_floor=0
    )
    decided = msgspec.structs.replace(taken, taken=[])
    old = msgspec.structs.replace(decided, hours=[msgspec.structs.replace(hour, decided=0)])

    assert checkpoint.decode(golden("delay_checkpoint_v1.hex")) == old
    assert checkpoint.decode(golden("delay_checkpoint_v1_decided.hex")) == decided
    assert checkpoint.decode(golden("delay_checkpoint_v1_taken.hex")) == taken


def test_a_damaged_checkpoint_is_refused() -> None:
    content = bytearray(checkpoint.encode(CHECKPOINT))
    content[-1] ^= 1
    with pytest.raises(Corrupt):
        checkpoint.decode(bytes(content))
    with pytest.raises(Corrupt):
        checkpoint.decode(b"DC")


def test_hours_are_named_by_number() -> None:
    assert hour_name(1_800_000_000_000) == "00001800000000000.log"
    assert hours_in(["00001800000000000.log", "x.log", "00001700000000000.log"]) == [
        1_700_000_000_000,
        1_800_000_000_000,
    ]
