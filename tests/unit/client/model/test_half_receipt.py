"""Receipts of half messages: made when looked at, told by the commit where they are (R11)."""

import pytest

from ternmq.client.model.half_receipt import HalfBatch, HalfReceipts
from ternmq.core.ids import ProducerId, id_to_text
from ternmq.wire.messages.transactions import HalfPlace

PRODUCER = ProducerId(start_ms=11, random=22)


def batch(topic: str, first: int, count: int, ids: list[bytes | None] | None = None) -> HalfBatch:
    return HalfBatch(
        topic=topic,
        broker_group="main",
        producer=PRODUCER,
        first=first,
        count=count,
        explicit_ids=ids,
    )


def test_receipts_of_several_batches_are_one_sequence() -> None:
    receipts, more = HalfReceipts(), HalfReceipts()
    receipts.add(batch("orders", 0, 3))
    more.add(batch("bills", 3, 2, [b"own", None]))
    early = more[1]
    receipts.extend(more)
    assert len(receipts) == 5
    assert [one.topic for one in receipts] == ["orders"] * 3 + ["bills"] * 2
    assert [one.number for one in receipts[1:4]] == [1, 2, 3]
    assert receipts[-1].id == id_to_text(PRODUCER.message_id(4))
    assert receipts[3].id != id_to_text(PRODUCER.message_id(3))
    assert [one.sequence for one in receipts] == [None] * 5
    receipts.fill_in(
        [
            HalfPlace(topic="bills", sequence=70, count=2, first_sequence=3),
            HalfPlace(topic="orders", sequence=9, count=3, first_sequence=0),
        ]
    )
    assert [one.sequence for one in receipts] == [9, 10, 11, 70, 71]
    assert early.sequence == 71
    with pytest.raises(IndexError):
        receipts[5]
    assert not HalfReceipts()
