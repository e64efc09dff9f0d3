"""Recognising repeats."""

import pytest

from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.core.errors import BadRequest, Corrupt
from ternmq.core.ids import ProducerId
from ternmq.storage.messages.producers import ProducerTable, StoredBatch, durable_start
from tests.unit.storage.builders import DATA, fresh, reopened

ANNA, BERT = (1, 10), (2, 20)


def receipt(number: int) -> StoredBatch:
    return StoredBatch(topic_id=3, base_sequence=number * 100, stored_at_ms=number)


def filled(table: ProducerTable, count: int) -> ProducerTable:
    for number in range(count):
        table.remember(ANNA, number * 10, 10, receipt(number))
    return table


def test_a_repeat_gets_the_receipt_of_the_first() -> None:
    table = filled(ProducerTable(), 5)
    assert table.find(ANNA, 20, 10) == receipt(2)
    assert table.find(ANNA, 50, 10) is None
    assert table.find(BERT, 20, 10) is None


def test_batches_may_arrive_in_any_order() -> None:
    table = ProducerTable()
    for number in (4, 0, 3, 1, 2):
        table.remember(ANNA, number * 10, 10, receipt(number))
    assert [table.find(ANNA, number * 10, 10) for number in range(5)] == [
        receipt(number) for number in range(5)
    ]


@pytest.mark.parametrize(("first", "count"), [(20, 9), (20, 11), (15, 10), (19, 1), (25, 3)])
def test_a_range_that_was_sent_in_other_batches_is_refused(first: int, count: int) -> None:
    with pytest.raises(BadRequest):
        filled(ProducerTable(), 5).find(ANNA, first, count)


def test_below_the_window_nothing_is_known_and_that_is_said() -> None:
    table = filled(ProducerTable(batches_max=512), 2_000)
    assert table.find(ANNA, 19_990, 10) == receipt(1_999)
    assert table.find(ANNA, (2_000 - 512) * 10, 10) is not None
    assert not table.too_old(ANNA, 19_990)
    assert table.find(ANNA, 0, 10) is None
    assert table.too_old(ANNA, 0)
    assert not table.too_old(BERT, 0)


def test_producers_are_forgotten_only_beyond_the_limit_and_only_after_a_day_of_silence() -> None:
    table = ProducerTable(producers_max=10, silence_ms=1_000)
    for number in range(15):
        table.remember((number, 0), 0, 1, receipt(number * 100))
    assert table.forget_silent(now_ms=1_500) == 5
    assert table.find((0, 0), 0, 1) is None
    assert table.find((5, 0), 0, 1) is not None
    assert table.forget_silent(now_ms=10**9) == 0
    for number in range(100, 130):
        table.remember((number, 0), 0, 1, receipt(2_000))
    assert table.forget_silent(now_ms=2_001) == 20, "twice the limit is the end of patience"
    assert len(table) == 20


def test_durable_producers_are_not_forgotten_by_silence() -> None:
    """Q8: a delay server repeats an intent after months."""
    table = ProducerTable(producers_max=10, silence_ms=1_000, durable_max=3)
    for number in range(3):
        table.remember((durable_start(number), 1), 0, 5, StoredBatch(1, number, number))
    for number in range(50):
        table.remember((1_000 + number, 2), 0, 1, StoredBatch(1, 0, 5_000))

    table.forget_silent(10**12)

    for number in range(3):
        assert table.find((durable_start(number), 1), 0, 5) == StoredBatch(1, number, number)
    assert len(table) == 13
    table.remember((durable_start(9), 1), 0, 5, StoredBatch(1, 9, 9))
    table.forget_silent(10**12)
    assert table.find((durable_start(0), 1), 0, 5) is None, "the bound holds for them too"
    assert table.find((durable_start(9), 1), 0, 5) is not None


def test_a_snapshot_comes_back_whole() -> None:
    table = filled(ProducerTable(batches_max=20), 100)
    table.remember(BERT, 7, 1, receipt(7))
    again = ProducerTable(batches_max=20)
    assert again.restore(table.snapshot(covers=77)) == 77
    assert again.snapshot(covers=77) == table.snapshot(covers=77)
    assert again.find(ANNA, 990, 10) == receipt(99)
    assert again.too_old(ANNA, 0)


def test_a_damaged_snapshot_is_refused() -> None:
    content = bytearray(filled(ProducerTable(), 3).snapshot(covers=1))
    for at in range(0, len(content), 7):
        content[at] ^= 1
        with pytest.raises(Corrupt):
            ProducerTable().restore(bytes(content))
        content[at] ^= 1
    with pytest.raises(Corrupt):
        ProducerTable().restore(b"")


def test_remembering_twice_changes_nothing() -> None:
    once, twice = filled(ProducerTable(), 5), filled(filled(ProducerTable(), 5), 5)
    assert once.snapshot(0) == twice.snapshot(0)


@pytest.mark.parametrize("lost", ["nothing", "producers", "tails", "all", "damaged"])
def test_repeats_are_recognised_after_a_crash_whatever_checkpoint_is_lost(lost: str) -> None:
    disk, store, maker = fresh()
    maker.put_many(store, 20, (1, 2))
    store.checkpoint()
    maker.put_many(store, 9, (1, 2))
    if lost in ("producers", "all"):
        disk.remove(DATA / "producers")
    if lost == "damaged":
        disk.flip(DATA / "producers", 30)
    if lost in ("tails", "all"):
        for name in disk.names(DATA / "consume"):
            disk.remove(DATA / "consume" / name)
    for _ in range(2):
        again = reopened(disk)
        for append in maker.kept:
            found = again.producers.find((11, 22), append.first_sequence, append.count)
            assert found == (append.topic_id, append.base_sequence, append.stored_at_ms)
        assert again.producers.is_of((11, 22), "shop")
        assert not again.producers.is_of((11, 22), "thief"), "whose it is, is read from the log"


def sent_by(app: str, producer: tuple[int, int]) -> bytearray:
    origin = Origin(topic="orders", app=app, producer=ProducerId(*producer))
    return encode_messages([Outgoing(body=b"x")], origin=origin, first_sequence=0)


def test_a_producer_is_of_the_application_that_stored_its_first_batch_also_after_a_restart() -> (
    None
):
    table = ProducerTable()
    assert table.is_of(ANNA, "thief"), "numbers of nobody are everybody's"
    table.remember(ANNA, 0, 1, receipt(0), sent_by("shop", ANNA))
    table.remember(ANNA, 1, 1, receipt(1), sent_by("thief", ANNA))
    table.remember(BERT, 0, 1, receipt(1), sent_by("shop", ANNA))
    again = ProducerTable()
    again.restore(table.snapshot(covers=0))
    for known in (table, again):
        assert known.is_of(ANNA, "shop")
        assert not known.is_of(ANNA, "thief")
        assert known.is_of(BERT, "thief"), "those bytes were not of that producer"
