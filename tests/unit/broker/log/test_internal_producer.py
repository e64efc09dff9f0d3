"""Copies that the broker makes itself (R13): none is too large to be stored at last."""

import random
import struct

from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Outgoing, Section, assemble
from ternmq.batch.layout import STORED_SIZE_MAX, Column, ColumnPart, Type
from ternmq.batch.properties import PropertyValue
from ternmq.batch.view import BatchView
from ternmq.broker.log.internal_producer import InternalProducer, copy_of
from ternmq.core.clock import SystemClock
from ternmq.wire.messages.topics import Topic
from tests.unit.batch.builders import ORIGIN

DEAD = Topic(id=9, name="%dead.g", created_at_ms=1)
NOTES: dict[str, PropertyValue] = {"%topic": "order.paid", "%sequence": 41, "%reason": "no"}


def stored(message: Outgoing) -> BatchView:
    unused: object = None  # Nothing is looked up or written for this.
    maker = InternalProducer(
        consume=unused,  # type: ignore[arg-type]
        fetcher=unused,  # type: ignore[arg-type]
        committer=unused,  # type: ignore[arg-type]
        clock=SystemClock(),
    )
    batch = maker.fitting(DEAD, message)
    check_incoming(batch, size_max=STORED_SIZE_MAX)
    return BatchView(batch)


def test_a_copy_that_fits_is_whole() -> None:
    view = stored(Outgoing(body=b"x" * 1000, key="k", properties={**NOTES, "own": "1"}))

    assert view.body(0) == b"x" * 1000
    assert view.properties(0) == {**NOTES, "own": "1"}


def test_a_body_that_we_pack_worse_than_its_producer_is_left_where_it_lies_and_named() -> None:
    body = random.Random(1).randbytes(STORED_SIZE_MAX)
    view = stored(Outgoing(body=body, key="k", properties={**NOTES, "own": "1"}))
    kept = view.properties(0)

    assert view.body(0) == b"" and view.key(0) == "k"
    assert f"{len(body)} bytes" in str(kept.pop("%damaged"))
    assert kept == {**NOTES, "own": "1"}


def test_properties_that_leave_no_room_for_ours_go_and_ours_stay() -> None:
    own = {"own": "y" * STORED_SIZE_MAX}
    view = stored(Outgoing(body=b"x", properties={**NOTES, **own, "%reason": "z" * 10_000}))
    kept = view.properties(0)

    assert kept["%topic"] == "order.paid" and kept["%sequence"] == 41
    assert "own" not in kept and kept["%reason"] == "z" * 4096


def test_a_message_whose_trace_context_is_nonsense_can_become_a_dead_letter() -> None:
    """The door looks at the size of a context only."""
    for context, kept in (
        (bytes(25), None),
        (b"t" * 25 + b"\n\xff", f"00-{'74' * 16}-{'74' * 8}-74"),
    ):
        sections = [
            Section(Column.BODY, ColumnPart.OFFSETS, Type.BINARY, struct.pack("<2i", 0, 1)),
            Section(Column.BODY, ColumnPart.DATA, Type.BINARY, b"x"),
            Section(
                Column.TRACE, ColumnPart.OFFSETS, Type.BINARY, struct.pack("<2i", 0, len(context))
            ),
            Section(Column.TRACE, ColumnPart.DATA, Type.BINARY, context),
        ]
        batch = assemble(sections, 1, 1, ORIGIN, 0, 1)
        check_incoming(batch)

        view = stored(copy_of(BatchView(batch), 0, {**NOTES}))

        assert (view.body(0), view.trace(0)) == (b"x", kept)
