"""What a consumer holds, and what a lost lease leaves in the application's hands."""

from ternmq.batch.encoder import Origin, encode_bodies
from ternmq.batch.envelope import Envelope
from ternmq.batch.layout import Stamp, stamp
from ternmq.batch.view import BatchView
from ternmq.client.consuming.held_rows import HeldRows, without
from ternmq.client.model.delivery import Delivery, NotLeased
from ternmq.core.ids import ProducerId


def a_delivery(
    *, lease: int, base: int = 100, count: int = 10, selection: list[tuple[int, int]] | None = None
) -> Delivery:
    origin = Origin(topic="orders", app="shop", producer=ProducerId(1, 2))
    batch = encode_bodies([b"x"] * count, origin=origin, first_sequence=0, born_at_ms=0)
    stamp(
        batch,
        Stamp(
            offset=0,
            topic_id=1,
            base_sequence=base,
            epoch=1,
            stored_at_ms=0,
            received_at_ms=0,
            durable_to=0,
        ),
    )
    envelope = Envelope(lease, 1, BatchView(batch), selection or [(0, count)], [], True)
    return Delivery(envelope, NotLeased(), None)


def test_rows_and_bytes_are_counted_until_settled() -> None:
    held = HeldRows()
    delivery = a_delivery(lease=1)
    held.add(delivery)
    assert (held.rows, held.leases()) == (10, [1])

    assert held.settle(delivery, 0, 4) == [(1, 100, 104)]
    assert held.settle(delivery, 4, 10) == [(1, 104, 110)]

    assert (held.rows, held.size, held.leases()) == (0, 0, [])


def test_only_selected_rows_count() -> None:
    held = HeldRows()
    delivery = a_delivery(lease=1, selection=[(2, 4), (8, 10)])
    held.add(delivery)

    assert held.rows == 4
    assert delivery.open_ranges(0, 10) == [(2, 4), (8, 10)]


def test_a_lost_lease_frees_its_place() -> None:
    held = HeldRows()
    kept, lost = a_delivery(lease=1), a_delivery(lease=2, base=200)
    held.add(kept)
    held.add(lost)

    assert held.lose({2}) == [lost]
    assert (held.rows, held.leases()) == (10, [1])
    assert held.settle(lost, 0, 1) == [(2, 200, 201)]  # A late ack, told as it is.
    assert held.rows == 10


def test_rows_in_hand_are_hidden_when_they_come_again() -> None:
    """D5: the consumer drops a message it already holds."""
    held = HeldRows()
    old = a_delivery(lease=1)
    held.add(old)
    held.lose({1})
    old.settled[5:10] = b"\1" * 5  # Not shown yet, so withdrawn by the consumer.
    new = a_delivery(lease=2, base=98, count=14)
    held.add(new)

    assert new.ranges == [(0, 2), (7, 14)]
    assert held.rows == 14
    old.settled[0:2] = b"\1\1"
    assert held.settle(old, 0, 2) == [(2, 100, 101), (2, 101, 102)]
    assert held.rows == 12


def test_a_delivery_lost_twice_hides_nothing_for_ever() -> None:
    held = HeldRows()
    deliveries = [a_delivery(lease=lease) for lease in (1, 2, 3)]
    first, second, third = deliveries
    held.add(first)
    held.lose({1})
    held.add(second)
    assert second.ranges == []
    held.lose({2})
    held.add(third)
    first.settled[0:10] = b"\1" * 10
    told = held.settle(first, 0, 10)

    assert [lease for lease, _, _ in told] == [3] * 10
    assert held.rows == 0
    fourth = a_delivery(lease=4)
    held.add(fourth)
    assert fourth.ranges == [(0, 10)]


def test_ranges_without_some_rows() -> None:
    assert without([(0, 5), (7, 9)], {0, 3, 8}) == [(1, 3), (4, 5), (7, 8)]


def test_attempts_belong_to_the_selected_rows() -> None:
    delivery = a_delivery(lease=1, selection=[(2, 4), (8, 10)])
    assert delivery.attempt(3) == 1
    delivery.attempts = [1, 2, 3, 4]

    assert [delivery.attempt(row) for row in (2, 3, 8, 9)] == [1, 2, 3, 4]


def test_rows_that_were_shown_and_are_not_settled_are_started() -> None:
    """Design 5: the broker suspects these first when the consumer vanishes."""
    held = HeldRows()
    shown, waiting = a_delivery(lease=1), a_delivery(lease=2, base=200)
    for delivery in (shown, waiting):
        held.add(delivery)
    shown.settled[0:3] = b"\1\1\1"
    held.settle(shown, 0, 3)

    started = held.started(lambda d: [(6, 10)] if d is shown else d.ranges)

    assert started == [(1, 103, 106)]
