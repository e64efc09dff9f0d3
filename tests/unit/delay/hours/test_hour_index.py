"""A row is found by its id, whether the id follows from its batch or not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.batch.encoder import Outgoing, encode_messages
from ternmq.batch.rows.merge import take
from ternmq.batch.view import BatchView
from ternmq.delay.hours import hour_index as hour_index_module
from ternmq.delay.hours.hour_index import HourIndex, IndexedRows, entry_of, hash_ids
from ternmq.delay.store.split_by_hour import HourPiece, place
from tests.unit.delay.store.test_split_by_hour import NOW, ORIGIN, stored


def a_piece(batch: bytearray, first_row: int, at: int, topic_id: int = 3) -> bytearray:
    view = BatchView(batch)
    piece = HourPiece(0, bytearray(batch), view.count, topic_id, np.zeros(view.count, np.int64))
    place(piece, view.stamp, wal_offset=5, at=at, row=first_row, durable=0)
    return piece.batch


@settings(max_examples=60, deadline=None)
@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=6), merged=st.booleans())
def test_every_id_leads_to_its_row(counts: list[int], merged: bool) -> None:
    index, first, at = HourIndex(), 0, 0
    expected: dict[bytes, int] = {}
    for number, count in enumerate(counts):
        rows = [Outgoing(body=b"", due_at_ms=NOW, born_at_ms=1) for _ in range(2 * count)]
        batch = stored([NOW] * len(rows))
        if merged:
            batch = take(BatchView(batch), np.arange(0, 2 * count, 2))
        piece = a_piece(_own(batch, number), first, at)
        view = BatchView(piece)
        index.add(entry_of(piece))
        for row in range(view.count):
            expected[view.id_bytes(row)] = first + row
        first, at = first + view.count, at + len(piece)

    for message_id, row in expected.items():
        assert row in index.find(message_id)
    assert index.find(b"\0" * 16) == []
    assert index.find(b"another") == []
    records = index.records_of(np.arange(first))
    for row in range(first):
        offset, size, start = index.place(int(records[row]))
        assert start <= row
        assert offset + size <= at


def _own(batch: bytearray, number: int) -> bytearray:
    """The same batch from another producer, so that ids do not repeat."""
    if BatchView(batch).attributes & 4:
        return batch if number == 0 else _renamed(batch, number)
    changed = bytearray(batch)
    changed[152] ^= number + 1
    return changed


def _renamed(batch: bytearray, number: int) -> bytearray:
    view = BatchView(batch)
    ids = [bytes([number]) + view.id_bytes(row)[1:] for row in range(view.count)]
    rows = [Outgoing(body=b"", due_at_ms=NOW, explicit_id=i) for i in ids]
    return encode_messages(rows, origin=ORIGIN, first_sequence=0)


def test_rows_know_their_topic() -> None:
    index = HourIndex()
    first = a_piece(stored([NOW, NOW]), 0, 0, topic_id=30)
    second = a_piece(stored([NOW]), 2, len(first), topic_id=40)
    index.add(entry_of(first))
    index.add(entry_of(second))

    numbers = index.topics_of(np.array([0, 1, 2]))

    assert [index.topic_ids[number] for number in numbers] == [30, 30, 40]
    assert index.end == len(first) + len(second)


def test_many_ids_are_found_without_sorting_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids in sorted blocks of a fixed size, and in what has not filled one yet."""
    monkeypatch.setattr(hour_index_module, "BLOCK_ROWS", 64)
    index, ids = HourIndex(), [bytes([0, at]) * 8 for at in range(200)]
    for first in range(0, 200, 10):
        mine = ids[first : first + 10]
        joined = np.frombuffer(b"".join(mine), np.uint8)
        index.add(
            IndexedRows(
                offset=first * 100,
                size=1_000,
                row_count=10,
                first_row=first,
                topic_id=1,
                wal_offset=first,
                producer=(1, 1),
                first_sequence=10**9 + first,
                due_ms=np.zeros(10, np.int64),
                hashes=hash_ids(np.full(10, 16), joined),
            )
        )

    assert all(index.find(message_id) == [at] for at, message_id in enumerate(ids))
    assert index.find(bytes(range(16))) == []
    assert [len(rows) for _, rows in index._blocks] == [70, 70]
