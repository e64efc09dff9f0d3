"""Trace contexts: what is written is read, what is none is refused, and rows keep theirs."""

import struct
from typing import Any

import numpy as np
import pytest

from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Origin, Outgoing, Section, assemble, encode_messages
from ternmq.batch.layout import Column, ColumnPart, Type
from ternmq.batch.rows.merge import ChosenRows, merge, take
from ternmq.batch.trace_context import pack_trace, read_trace
from ternmq.batch.view import BatchView
from ternmq.core.errors import BadRequest, ProtocolError
from ternmq.core.ids import ProducerId

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b8-00;a=b"
ORIGIN = Origin(topic="orders", app="shop", producer=ProducerId(1_700_000_000_000, 7))


@pytest.mark.parametrize("text", [TRACE, f"{TRACE};a=b,c=d", TRACE[:-2] + "00"])
def test_a_context_is_read_back(text: str) -> None:
    assert read_trace(pack_trace(text)) == text
    assert len(pack_trace(TRACE)) == 25


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        TRACE.upper(),
        TRACE[:-1],
        "01" + TRACE[2:],
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"{TRACE};" + "x" * 513,
        f"{TRACE};a=ü",
        7,
        ["a list"],
    ],
)
def test_what_is_none_is_refused_with_words(text: Any) -> None:
    with pytest.raises(BadRequest, match="trace"):
        pack_trace(text)


@pytest.mark.parametrize(
    "packed", [None, b"", b"short", bytes(25), bytes(16) + b"s" * 9, b"t" * 16 + bytes(9)]
)
def test_what_is_not_understood_is_no_context(packed: bytes | None) -> None:
    assert read_trace(packed) is None


@pytest.mark.parametrize("state", [b"\n", b"\x00\x1b[2J", "ü".encode(), b"\xff" * 512, b"a=b"])
def test_what_strangers_wrote_can_be_copied_to_another_batch(state: bytes) -> None:
    """The door looks at sizes only; a dead letter must not fail because of its context."""
    text = read_trace(b"t" * 25 + state)

    assert text is not None
    assert read_trace(pack_trace(text)) == text


def test_rows_of_a_batch_have_their_own_and_a_batch_without_any_no_column() -> None:
    rows = [Outgoing(body=b"a", trace=TRACE), Outgoing(body=b"b")]
    view = BatchView(encode_messages(rows, origin=ORIGIN, first_sequence=0))
    bare = BatchView(encode_messages(rows[1:], origin=ORIGIN, first_sequence=0))

    assert [view.trace(0), view.trace(1)] == [TRACE, None]
    assert view.traces() == {TRACE}
    assert bare.buffer(Column.TRACE, ColumnPart.DATA) is None and bare.traces() == set()


@pytest.mark.parametrize("size", [1, 24, 538])
def test_a_context_of_another_size_is_refused_at_the_door(size: int) -> None:
    sections = [
        Section(Column.BODY, ColumnPart.OFFSETS, Type.BINARY, struct.pack("<2i", 0, 1)),
        Section(Column.BODY, ColumnPart.DATA, Type.BINARY, b"x"),
        Section(Column.TRACE, ColumnPart.OFFSETS, Type.BINARY, struct.pack("<2i", 0, size)),
        Section(Column.TRACE, ColumnPart.DATA, Type.BINARY, b"t" * size),
    ]
    batch = assemble(sections, 1, 1, ORIGIN, 0, 1)

    with pytest.raises(ProtocolError, match="context"):
        check_incoming(batch)


def test_contexts_are_kept_where_rows_are_taken_and_merged() -> None:
    """As for delays, and for rows that come again."""
    rows = [Outgoing(body=b"a", trace=TRACE), Outgoing(body=b"b"), Outgoing(body=b"c", trace=OTHER)]
    view = BatchView(encode_messages(rows, origin=ORIGIN, first_sequence=0))
    bare = BatchView(encode_messages([Outgoing(body=b"d")], origin=ORIGIN, first_sequence=3))

    taken = BatchView(take(view, np.array([1, 2])))
    chosen = [ChosenRows(view, np.array([0, 2])), ChosenRows(bare, np.array([0]))]
    merged = BatchView(merge(chosen, origin=ORIGIN, first_sequence=9))

    assert [taken.trace(row) for row in range(2)] == [None, OTHER]
    assert [merged.trace(row) for row in range(3)] == [TRACE, OTHER, None]
