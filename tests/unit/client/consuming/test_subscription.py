"""A lease that is over by the consumer's own clock: what was not begun is not begun (Q13)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.client.consuming.consumer import Consumer
from ternmq.client.consuming.pending_acks import TAKEN_OTHERS_MAX
from ternmq.client.consuming.subscription_plan import make_plan
from ternmq.client.model.delivery import Delivery
from ternmq.core.clock import elapsed
from ternmq.core.errors import LeaseLost
from ternmq.rpc.server import Peer
from ternmq.sync.consumer import Consumer as BlockingConsumer
from ternmq.wire.frame import Frame
from ternmq.wire.messages.pull import Ack, Acked
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack, unpack
from tests.unit.client.consuming.test_consumer import done_ranges, take
from tests.unit.client.fake_broker import FakeBroker
from tests.waiting import until

LEASE_S = 60.0


class Turned:
    """A clock of leases that tests turn."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Turned:
    return Turned()


@pytest.fixture
async def consumer(mq: ternmq.Client, clock: Turned) -> AsyncIterator[Consumer]:
    plan = make_plan("orders", "billing", {"ordered": True}, timeout=5)
    async with Consumer(mq.cluster, plan, clock) as made:
        yield made


async def _handed_out_again(broker: FakeBroker, waiting: "asyncio.Task[Any]") -> None:
    """Also the pulls that are under way now were asked for before the clock was turned."""

    def done() -> bool:
        if not waiting.done():
            broker.redeliver("orders")
        return waiting.done()

    await until(done, every=0.05)


def test_the_clock_of_leases_goes_on() -> None:
    assert elapsed() <= elapsed()


async def test_what_waits_in_the_buffer_for_longer_than_its_lease_is_given_back_unseen(
    broker: FakeBroker, mq: ternmq.Client, consumer: Consumer, clock: Turned
) -> None:
    await mq.send_many("orders", [b"%d" % at for at in range(10)])
    begun = await take(consumer, 3)
    clock.now += LEASE_S
    waiting = asyncio.create_task(take(consumer, 1))
    await until(lambda: done_ranges(broker, "back") == [(1, 3, 10)])
    assert not waiting.done()

    await _handed_out_again(broker, waiting)
    [again] = await waiting
    assert [message.sequence for message in begun] == [0, 1, 2]
    assert again.fence > begun[0].fence


async def test_what_waits_in_the_socket_counts_from_when_it_was_asked_for(
    broker: FakeBroker, mq: ternmq.Client, consumer: Consumer, clock: Turned
) -> None:
    await until(lambda: broker.pulls)
    clock.now += LEASE_S  # The answer is written now, and read who knows when.
    await mq.send("orders", b"x")
    waiting = asyncio.create_task(take(consumer, 1))
    await until(lambda: done_ranges(broker, "back") == [(1, 0, 1)])
    assert not waiting.done()
    waiting.cancel()


async def test_a_pull_waits_for_a_part_of_the_lease_only(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    broker.lease_ms = 2_000
    async with mq.consumer("orders", group="billing"):
        await until(lambda: broker.pulls)

    assert broker.pulls[0].wait_ms == 500


async def test_renewing_puts_the_end_off(broker: FakeBroker, mq: ternmq.Client) -> None:
    broker.lease_ms = 300
    clock = Turned()
    plan = make_plan("orders", "billing", {}, timeout=5)
    await mq.send_many("orders", [b"x"] * 4)
    async with Consumer(mq.cluster, plan, clock) as consumer:
        await take(consumer, 1)
        for _ in range(3):
            renewals = len(broker.renewals)
            clock.now += 0.2
            await until(lambda before=renewals: len(broker.renewals) > before + 1)  # type: ignore[misc]
            await take(consumer, 1)

    assert done_ranges(broker, "back") == []


async def test_a_lease_is_renewed_until_the_broker_was_told_what_became_of_its_rows(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    """Found by a storm of a million retries: telling took longer than the lease, so most of them
    were ready again at once instead of an hour later."""
    broker.lease_ms = 300
    rows = 2 * TAKEN_OTHERS_MAX  # Of which one request takes half.
    await mq.send_many("orders", [b"x"] * rows)
    async with mq.consumer("orders", group="billing", prefetch=2 * rows) as consumer:
        messages = await take(consumer, rows)
        unheard: list[Frame] = []

        def ignore(peer: Peer, frame: Frame) -> bool:
            unheard.append(frame)
            return True

        broker.behave(Command.ACK, ignore)
        for number, message in enumerate(messages):
            message.retry(after=60 + number)
        await until(lambda: unheard)
        renewals = len(broker.renewals)
        await until(lambda: len(broker.renewals) > renewals + 1)

        assert broker.renewals[-1].leases == [messages[-1].fence.lease]
        broker.cut_all()
        await until(lambda: len(broker.joins) > 1)
        assert broker.joins[-1].held == [messages[-1].fence.lease]
        del broker.behaviours[Command.ACK]
        await consumer.flush()
        assert len(done_ranges(broker, "retry")) == rows


async def test_a_batch_is_looked_at_again_when_it_was_gathered_for_long(
    broker: FakeBroker, mq: ternmq.Client, consumer: Consumer, clock: Turned
) -> None:
    await mq.send_many("orders", [b"x"] * 3)
    gathering = asyncio.create_task(consumer.next_batch(10, wait=0.3))
    await until(lambda: consumer._waiters)
    clock.now += LEASE_S
    await until(lambda: done_ranges(broker, "back") == [(1, 0, 3)])
    await _handed_out_again(broker, gathering)
    batch = await gathering

    assert batch is not None
    assert batch[0].fence.lease > 1


def test_the_blocking_consumer_looks_too() -> None:
    """Rows that its thread has fetched and not shown."""

    class Source:
        thread = 0
        given_back: tuple[int, int] | None = None

        def settle_later(self, delivery: Delivery, rows: tuple[int, int], outcome: object) -> None:
            self.given_back = rows

    class Fetched:
        ordered = True
        now = Turned()

        def watch(self, withdrawn: object) -> None:
            """Nothing is withdrawn here."""

        async def next_batch(self, rows_max: int, **_: object) -> None:
            return None

    source, fetched = Source(), Fetched()
    delivery = Delivery.__new__(Delivery)
    delivery.source, delivery.until = source, fetched.now() + LEASE_S  # type: ignore[assignment]
    delivery.settled = bytearray(5)
    consumer = BlockingConsumer(fetched)  # type: ignore[arg-type]
    consumer._parts = [(delivery, 0, 5)]
    next(consumer)
    fetched.now.now += LEASE_S

    with pytest.raises(StopIteration):
        next(consumer)
    assert source.given_back == (1, 5)


def _late(broker: FakeBroker, *sequences: int) -> None:
    """The broker says that acks of these came too late."""

    def answer(peer: Peer, frame: Frame) -> bool:
        done = unpack(frame.payload, Ack).done
        late = [
            (each.lease, sequence, sequence + 1)
            for each in done
            for sequence in sequences
            if each.first <= sequence < each.end
        ]
        acked = Acked(settled=0, late=len(late), late_rows=late)
        peer.answer(frame.command, frame.correlation, pack(acked))
        return True

    broker.behave(Command.ACK, answer)


async def test_who_awaits_a_late_ack_in_order_is_told_and_the_others_are_not(
    broker: FakeBroker, mq: ternmq.Client, consumer: Consumer
) -> None:
    await mq.send_many("orders", [b"x"] * 4)
    messages = await take(consumer, 4)
    _late(broker, 1, 3)
    receipts = [message.ack() for message in messages[:3]]

    await receipts[0]
    with pytest.raises(LeaseLost, match="fence"):
        await receipts[1]
    await receipts[2]
    with pytest.raises(LeaseLost):
        await messages[3].reject()


async def test_who_awaits_a_late_reject_is_told_in_any_group(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    """He would look for a dead letter that is not there."""
    await mq.send_many("orders", [b"x"] * 2)
    async with mq.consumer("orders", group="billing") as consumer:
        first, second = await take(consumer, 2)
        _late(broker, 0)
        with pytest.raises(LeaseLost):
            await first.reject()
        await second.reject()


async def test_an_ack_that_had_to_be_sent_again_may_be_late_because_it_counted(
    broker: FakeBroker, mq: ternmq.Client, consumer: Consumer
) -> None:
    await mq.send("orders", b"x")
    [message] = await take(consumer, 1)

    def cut(peer: Peer, frame: Frame) -> bool:
        peer.abort()
        return True

    broker.behave(Command.ACK, cut)
    receipt = message.ack()
    await until(lambda: len(broker.joins) > 1)
    _late(broker, 0)
    await receipt


async def test_in_order_no_ack_rides_on_a_pull(
    broker: FakeBroker, consumer: Consumer, mq: ternmq.Client
) -> None:
    """The answer to a pull does not say what came too late."""
    await mq.send_many("orders", [b"x"] * 1000)
    for message in await take(consumer, 1000):
        message.ack()
    await consumer.flush()

    assert [pull.done for pull in broker.pulls if pull.done] == []
    assert sum(end - first for _, first, end in done_ranges(broker)) == 1000
