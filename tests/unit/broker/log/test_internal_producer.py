"""Copies that the broker makes itself (R13): none is too large to be stored at last."""

import random

from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Outgoing
from ternmq.batch.layout import STORED_SIZE_MAX
from ternmq.batch.properties import PropertyValue
from ternmq.batch.view import BatchView
from ternmq.broker.log.internal_producer import InternalProducer
from ternmq.core.clock import SystemClock
from ternmq.wire.messages.topics import Topic

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
