"""Rows go to the hour they are due in, by UTC, the same whenever it is done again (Q7)."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.batch import layout
from ternmq.batch.due import due_times
from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.batch.view import BatchView
from ternmq.core.ids import ProducerId
from ternmq.core.units import HOUR_MS
from ternmq.delay.store.split_by_hour import PIECE_SIZE, hour_of, split

ORIGIN = Origin(topic="t", app="shop", producer=ProducerId(1, 2))
NOW = 1_800_000_000_000


def stored(dues: list[int], *, body: bytes = b"x", relative: bool = False) -> bytearray:
    rows = [
        Outgoing(body=body, born_at_ms=at, delay_ms=due)
        if relative
        else Outgoing(body=body, born_at_ms=at, due_at_ms=due)
        for at, due in enumerate(dues)
    ]
    batch = encode_messages(rows, origin=ORIGIN, first_sequence=7)
    layout.stamp(
        batch,
        layout.Stamp(
            offset=0,
            topic_id=3,
            base_sequence=0,
            epoch=1,
            stored_at_ms=NOW,
            received_at_ms=NOW,
            durable_to=0,
        ),
    )
    return batch


@settings(max_examples=80, deadline=None)
@given(
    dues=st.lists(st.integers(NOW - HOUR_MS, NOW + 9 * HOUR_MS), min_size=1, max_size=40),
    relative=st.booleans(),
)
def test_every_row_is_in_the_piece_of_its_hour(dues: list[int], relative: bool) -> None:
    given_times = [max(0, due - NOW) for due in dues] if relative else dues
    batch = stored(given_times, relative=relative)
    view = BatchView(batch)
    expected = {view.id_bytes(row): due for row, due in enumerate(due_times(view, NOW).tolist())}

    found: dict[bytes, int] = {}
    for piece in split(bytes(batch), HOUR_MS):
        layout.stamp(piece.batch, layout.read_stamp(batch))
        part = BatchView(piece.batch)
        part.check()
        for row in range(part.count):
            due = int(piece.due_ms[row])
            found[part.id_bytes(row)] = due
            assert piece.hour == max(due, NOW) // HOUR_MS * HOUR_MS
        assert part.count == piece.row_count
    assert found == expected
    again = split(bytes(batch), HOUR_MS)
    assert [bytes(p.batch) for p in again] == [bytes(p.batch) for p in split(bytes(batch), HOUR_MS)]


def test_rows_of_one_hour_stay_one_batch_byte_for_byte() -> None:
    batch = stored([NOW + 5] * 100)

    [piece] = split(bytes(batch), HOUR_MS)

    assert piece.batch == batch


def test_a_batch_spread_over_an_hour_is_cut_by_time() -> None:
    dues = [NOW // HOUR_MS * HOUR_MS + HOUR_MS + (at * 7_919) % HOUR_MS for at in range(10_000)]

    pieces = split(bytes(stored(dues, body=bytes(range(256)))), HOUR_MS)

    assert len(pieces) > 2
    assert all(BatchView(piece.batch).body_size <= PIECE_SIZE for piece in pieces)
    starts = [int(piece.due_ms.min()) for piece in pieces]
    ends = [int(piece.due_ms.max()) for piece in pieces]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2027, 3, 28, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),  # Does not exist there.
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2026, 10, 25, 2, 30, fold=0, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2028, 2, 29, 23, 59, 59, tzinfo=UTC),
        datetime(2028, 12, 31, 23, 59, 59, tzinfo=ZoneInfo("Asia/Kathmandu")),
    ],
)
def test_daylight_saving_and_leap_days_change_nothing(moment: datetime) -> None:
    due = int(moment.timestamp() * 1000)

    [hour] = hour_of(np.array([due]), 0, HOUR_MS).tolist()

    assert hour % HOUR_MS == 0
    assert hour <= due < hour + HOUR_MS
