"""Due times: carried by every way of making a batch, kept by a cut, refused where they lie."""

import struct

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.batch.check import check_incoming
from ternmq.batch.due import due_times
from ternmq.batch.encoder import Due, Outgoing, encode_bodies
from ternmq.batch.layout import DUE_MAX_MS, Attribute, Column, ColumnPart
from ternmq.batch.rows.cut import cut
from ternmq.batch.view import BatchView
from ternmq.core.errors import BadRequest, Corrupt, ProtocolError
from tests.unit.batch.builders import ORIGIN, a_batch

times = st.integers(0, DUE_MAX_MS)
RECEIVED = 1_800_000_000_000


@settings(max_examples=60, deadline=None)
@given(due=st.lists(times, min_size=1, max_size=40), relative=st.booleans(), data=st.data())
def test_each_row_has_its_own_time_and_a_cut_keeps_it(
    due: list[int], relative: bool, data: st.DataObject
) -> None:
    """Q7, R7."""
    rows = [
        Outgoing(body=b"b", delay_ms=ms) if relative else Outgoing(body=b"b", due_at_ms=ms)
        for ms in due
    ]
    batch = a_batch(rows)
    first = data.draw(st.integers(0, len(due) - 1))

    incoming = check_incoming(batch)
    smaller = cut(batch, first, len(due))

    base = RECEIVED if relative else 0
    assert incoming.delayed
    wanted = [min(base + ms, DUE_MAX_MS) for ms in due]
    assert due_times(BatchView(batch), RECEIVED).tolist() == wanted
    kept = due_times(BatchView(smaller.batch), RECEIVED).tolist()
    assert kept == wanted[smaller.first_row :]


@pytest.mark.parametrize("relative", [True, False])
def test_bare_bodies_share_one_time(relative: bool) -> None:
    batch = encode_bodies(
        [b"a", b"b", b"c"], origin=ORIGIN, first_sequence=0, born_at_ms=5, due=Due(7, relative)
    )

    check_incoming(batch)
    base = RECEIVED if relative else 0
    assert due_times(BatchView(batch), RECEIVED).tolist() == [base + 7] * 3


def test_a_batch_without_times_is_not_delayed() -> None:
    batch = a_batch([Outgoing(body=b"b")])

    assert not check_incoming(batch).delayed
    with pytest.raises(Corrupt, match="no due time"):
        due_times(BatchView(batch), RECEIVED)


@pytest.mark.parametrize(
    "rows",
    [
        [Outgoing(body=b"a", due_at_ms=1), Outgoing(body=b"b")],
        [Outgoing(body=b"a"), Outgoing(body=b"b", due_at_ms=1)],
        [Outgoing(body=b"a", delay_ms=1), Outgoing(body=b"b")],
        [Outgoing(body=b"a", delay_ms=1), Outgoing(body=b"b", due_at_ms=1)],
        [Outgoing(body=b"a", delay_ms=1, due_at_ms=1)],
    ],
)
def test_kinds_of_due_times_do_not_mix(rows: list[Outgoing]) -> None:
    with pytest.raises(BadRequest, match="one kind"):
        a_batch(rows)


def forged(batch: bytearray, at: int, packed: bytes) -> bytearray:
    batch[at : at + len(packed)] = packed
    struct.pack_into("<I", batch, 128, crc32c(memoryview(batch)[132:]))
    return batch


@pytest.mark.parametrize("value", [-1, DUE_MAX_MS + 1, 2**63 - 1, -(2**63)])
def test_a_time_that_no_date_can_be_is_refused(value: int) -> None:
    batch = a_batch([Outgoing(body=b"a", due_at_ms=5), Outgoing(body=b"b", due_at_ms=5)])
    at = BatchView(batch).parts()[Column.DUE, ColumnPart.VALUES][0]

    with pytest.raises(ProtocolError, match="due times"):
        check_incoming(forged(batch, at + 8, struct.pack("<q", value)))


def test_relative_without_times_is_refused() -> None:
    batch = a_batch([Outgoing(body=b"a")])

    with pytest.raises(ProtocolError, match="relative"):
        check_incoming(forged(batch, 132, struct.pack("<I", Attribute.RELATIVE)))


def test_the_largest_delay_ends_at_the_last_date_that_can_be_shown() -> None:
    batch = a_batch([Outgoing(body=b"a", delay_ms=DUE_MAX_MS)])

    due = due_times(BatchView(batch), RECEIVED)

    assert due.dtype == np.int64
    assert int(due[0]) == DUE_MAX_MS
