"""Consuming: showing, settling, holding on over reconnects, leaving."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

import ternmq
from ternmq.client.consuming.ack_sender import ACK_DELAY_S
from ternmq.core.errors import BadName, BadRequest, Closed, GroupNotFound, Unavailable
from ternmq.wire.messages.groups import Start
from ternmq.wire.numbers import Command
from tests.unit.client.fake_broker import FakeBroker
from tests.waiting import until


async def take(consumer: ternmq.Consumer, count: int) -> list[ternmq.Message]:
    async with asyncio.timeout(10):
        return [await anext(consumer) for _ in range(count)]


def done_ranges(broker: FakeBroker, kind: str = "ack") -> list[tuple[int, int, int]]:
    return [(done.lease, done.first, done.end) for done in broker.done if done.kind == kind]


async def test_messages_arrive_with_all_their_fields(mq: ternmq.Client) -> None:
    receipt = await mq.send(
        "orders",
        b"paid",
        key="o-1",
        tag="vip",
        properties={"amount": 12},
        order_key="c-1",
        priority=3,
    )
    async with mq.consumer("orders", group="billing") as consumer:
        [message] = await take(consumer, 1)

        assert message.body == message.value == b"paid"
        assert (message.key, message.tag, message.order_key) == ("o-1", "vip", "c-1")
        assert message.properties == {"amount": 12}
        assert message.id == receipt.id
        assert (message.topic, message.app) == ("orders", "shop")
        assert (message.sequence, message.attempt, message.priority) == (0, 1, 3)
        assert message.born_at.tzinfo is UTC
        assert message.stored_at == receipt.stored_at


async def test_acks_in_order_become_one_range(broker: FakeBroker, mq: ternmq.Client) -> None:
    await mq.send_many("orders", [b"%d" % at for at in range(1000)])
    async with mq.consumer("orders", group="billing") as consumer:
        for message in await take(consumer, 1000):
            message.ack()
        await consumer.flush()

        assert done_ranges(broker) == [(1, 0, 1000)]


async def test_acks_out_of_order_are_merged(broker: FakeBroker, mq: ternmq.Client) -> None:
    await mq.send_many("orders", [b"x"] * 10)
    async with mq.consumer("orders", group="billing") as consumer:
        messages = await take(consumer, 10)
        for at in (3, 1, 2, 0, 9, 7):
            messages[at].ack()
        await consumer.flush()

        assert done_ranges(broker) == [(1, 0, 4), (1, 7, 8), (1, 9, 10)]


async def test_acks_are_sent_soon_without_being_asked(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    """Q13: acks are batched by time; nobody flushes here."""
    await mq.send_many("orders", [b"x"] * 10)
    async with mq.consumer("orders", group="billing") as consumer:
        for message in await take(consumer, 10):
            message.ack()

        await until(lambda: done_ranges(broker) == [(1, 0, 10)])


async def test_acks_ride_on_the_next_pull(broker: FakeBroker) -> None:
    """Q13: with a small prefetch the next pull has to wait for acks, and takes them along."""
    async with ternmq.connect(broker.url, batch_rows_max=10) as mq:
        await mq.send_many("orders", [b"x"] * 40)
        async with mq.consumer("orders", group="billing", prefetch=10) as consumer:
            for _ in range(40):
                [message] = await take(consumer, 1)
                message.ack()

    riding = [done for pull in broker.pulls for done in pull.done]
    assert riding
    assert len(broker.pulls) >= 3


async def test_a_settled_message_stays_settled(broker: FakeBroker, mq: ternmq.Client) -> None:
    await mq.send_many("orders", [b"x"] * 3)
    async with mq.consumer("orders", group="billing") as consumer:
        [first, second, _] = await take(consumer, 3)
        first.ack()
        first.ack()
        first.retry()
        second.reject("no such order")
        second.ack()
        assert first.settled
        await consumer.flush()

    assert done_ranges(broker) == [(1, 0, 1)]
    assert [(done.kind, done.first, done.reason) for done in broker.done[1:]] == [
        ("reject", 1, "no such order")
    ]


async def test_a_retry_says_when_and_why(broker: FakeBroker, mq: ternmq.Client) -> None:
    await mq.send_many("orders", [b"x"] * 2)
    async with mq.consumer("orders", group="billing") as consumer:
        [first, second] = await take(consumer, 2)
        await first.retry()
        await second.retry(after=0.5, reason="bank is closed")

    said = [(done.kind, done.first, done.after_ms, done.reason) for done in broker.done]
    assert said == [("retry", 0, -1, ""), ("retry", 1, 500, "bank is closed")]


async def test_awaiting_an_ack_waits_for_the_broker(broker: FakeBroker, mq: ternmq.Client) -> None:
    await mq.send("orders", b"paid")
    async with mq.consumer("orders", group="billing") as consumer:
        [message] = await take(consumer, 1)
        await message.ack()

        assert done_ranges(broker) == [(1, 0, 1)]


async def test_batches_are_acked_as_ranges(broker: FakeBroker, mq: ternmq.Client) -> None:
    await mq.send_many("orders", [b"%d" % at for at in range(5)])
    async with mq.consumer("orders", group="billing") as consumer:
        batch = await anext(consumer.batches())
        assert len(batch) == 5
        assert batch.bodies == [b"0", b"1", b"2", b"3", b"4"]
        assert batch.topic == "orders"
        assert batch[1].body == b"1"
        assert batch[-1].sequence == 4
        assert [message.body for message in batch[1:3]] == [b"1", b"2"]
        batch[1].retry()
        batch.ack()
        await consumer.flush()

    assert done_ranges(broker) == [(1, 0, 1), (1, 2, 5)]
    assert done_ranges(broker, "retry") == [(1, 1, 2)]


async def test_a_batch_may_be_an_arrow_record_batch(mq: ternmq.Client) -> None:
    await mq.send_many("orders", [b"%d" % at for at in range(5)])
    async with mq.consumer("orders", group="billing") as consumer:
        await take(consumer, 2)
        batch = await anext(consumer.batches())

        table = batch.to_arrow()
        assert table.column("body").to_pylist() == [b"2", b"3", b"4"]
        assert table.column("sequence").to_pylist() == [2, 3, 4]


async def test_small_stored_batches_are_shown_as_one(broker: FakeBroker, mq: ternmq.Client) -> None:
    for at in range(4):
        await mq.send("orders", b"%d" % at, key=None if at % 2 else "k")
    async with mq.consumer("orders", group="billing") as consumer:
        await until(lambda: len(broker.pulls) >= 5)
        batch = await anext(consumer.batches())

        assert batch.bodies == [b"0", b"1", b"2", b"3"]
        assert batch[2].body == b"2"
        assert batch.to_arrow().column("key").to_pylist() == ["k", None, "k", None]


async def test_showing_one_by_one_and_in_batches_may_be_mixed(mq: ternmq.Client) -> None:
    await mq.send_many("orders", [b"%d" % at for at in range(5)])
    async with mq.consumer("orders", group="billing") as consumer:
        [first] = await take(consumer, 1)
        batch = await anext(consumer.batches())

        assert [first.body, *batch.bodies] == [b"0", b"1", b"2", b"3", b"4"]


async def test_prefetch_bounds_what_is_held(broker: FakeBroker) -> None:
    async with ternmq.connect(broker.url, batch_rows_max=10) as mq:
        await mq.send_many("orders", [b"x"] * 1000)
        async with mq.consumer("orders", group="billing", prefetch=50) as consumer:
            held = await take(consumer, 30)
            pulls = len(broker.pulls)
            assert 10 * pulls <= 50
            for message in held:
                message.ack()
            await until(lambda: len(broker.pulls) > pulls)


async def test_a_consumer_comes_back_with_the_leases_it_holds(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    await mq.send_many("orders", [b"%d" % at for at in range(4)])
    async with mq.consumer("orders", group="billing") as consumer:
        [first] = await take(consumer, 1)
        broker.cut_all()
        await until(lambda: len(broker.joins) == 2)
        rest = await take(consumer, 3)
        for message in [first, *rest]:
            message.ack()
        await consumer.flush()

    assert broker.joins[1].held == [1]
    assert [message.body for message in rest] == [b"1", b"2", b"3"]
    assert done_ranges(broker) == [(1, 0, 4)]


async def test_rows_of_a_lost_lease_are_not_shown_any_more(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    """D5: what is in hand already is not shown twice either; its late ack counts."""
    await mq.send_many("orders", [b"%d" % at for at in range(4)])
    async with mq.consumer("orders", group="billing") as consumer:
        [first] = await take(consumer, 1)
        broker.keeps = False
        broker.cut_all()
        await until(lambda: len(broker.joins) == 2)
        broker.redeliver("orders")
        rest = await take(consumer, 3)
        for message in [first, *rest]:
            message.ack()
        await consumer.flush()

    assert [message.body for message in rest] == [b"1", b"2", b"3"]
    assert done_ranges(broker) == [(2, 0, 4)]


async def test_acks_whose_answer_was_lost_are_told_again(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    def cut(peer: Any, frame: Any) -> bool:
        broker.behaviours.clear()
        peer.abort()
        return True

    await mq.send_many("orders", [b"x"] * 4)
    async with mq.consumer("orders", group="billing") as consumer:
        messages = await take(consumer, 4)
        broker.behave(Command.ACK, cut)
        for message in messages:
            message.ack()
        await consumer.flush()

    # Twice is harmless; the first may have ridden on a pull that the cut left unanswered.
    assert set(done_ranges(broker)) == {(1, 0, 4)}
    assert len(broker.joins) == 2


async def test_leases_are_renewed_while_rows_are_held(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    broker.lease_ms = 60
    await mq.send_many("orders", [b"x"] * 2)
    async with mq.consumer("orders", group="billing") as consumer:
        messages = await take(consumer, 2)
        await until(lambda: len(broker.renewals) >= 2)
        assert broker.renewals[0].leases == [1]
        broker.lost_leases = [1]
        broker.redeliver("orders")
        for message in messages:
            message.ack()
        await consumer.flush()


async def test_leaving_tells_what_is_settled_and_leaves(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    """Q13: close flushes and unregisters."""
    await mq.send_many("orders", [b"x"] * 4)
    async with mq.consumer("orders", group="billing") as consumer:
        for message in (await take(consumer, 4))[:2]:
            message.ack()

    assert done_ranges(broker) == [(1, 0, 2)]
    assert broker.left == 1
    with pytest.raises(Closed):
        await consumer.flush()


async def test_closing_ends_the_iteration(mq: ternmq.Client) -> None:
    consumer = await mq.consumer("orders", group="billing").start()

    async def iterate() -> int:
        return len([message async for message in consumer])

    iterating = asyncio.create_task(iterate())
    await asyncio.sleep(0)
    await consumer.close()

    assert await iterating == 0


async def test_an_error_from_the_broker_ends_the_iteration(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    broker.refuse(Command.PULL, GroupNotFound("the group was deleted"))
    async with mq.consumer("orders", group="billing") as consumer:
        with pytest.raises(GroupNotFound, match="was deleted"):
            await anext(consumer)


async def test_a_group_that_cannot_be_joined_says_why(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    broker.refuse(Command.JOIN, ternmq.Unauthorized("the topic is closed"))
    with pytest.raises(ternmq.Unauthorized, match="is closed"):
        await mq.consumer("orders", group="billing").start()


async def test_several_topics_are_consumed_together(broker: FakeBroker, mq: ternmq.Client) -> None:
    """R24."""
    await mq.send("orders", b"o")
    await mq.send("refunds", b"r")
    async with mq.consumer(["orders", "refunds"], group="billing") as consumer:
        messages = await take(consumer, 2)

    assert sorted((message.topic, message.body) for message in messages) == [
        ("orders", b"o"),
        ("refunds", b"r"),
    ]
    assert broker.joins[0].topics == ["orders", "refunds"]


async def test_several_tasks_may_share_a_consumer(mq: ternmq.Client) -> None:
    await mq.send_many("orders", [b"%d" % at for at in range(100)])
    async with mq.consumer("orders", group="billing") as consumer:
        seen: list[bytes] = []

        async def work() -> None:
            while len(seen) < 100:
                message = await anext(consumer)
                seen.append(message.body)
                message.ack()
                await asyncio.sleep(0)

        workers = [asyncio.create_task(work()) for _ in range(5)]
        await until(lambda: len(seen) == 100)
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)

    assert sorted(seen) == sorted(b"%d" % at for at in range(100))


async def test_acks_from_other_threads_count(broker: FakeBroker, mq: ternmq.Client) -> None:
    await mq.send_many("orders", [b"x"] * 100)
    async with mq.consumer("orders", group="billing") as consumer:
        messages = await take(consumer, 100)

        def ack_all() -> None:
            for message in messages:
                message.ack()

        await asyncio.to_thread(ack_all)
        await consumer.flush()

    assert done_ranges(broker) == [(1, 0, 100)]


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ("earliest", Start(at="earliest")),
        ("latest", Start(at="latest")),
        (17, Start(at="sequence", value=17)),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), Start(at="time", value=1000)),
    ],
)
async def test_where_to_start_is_told(
    broker: FakeBroker, mq: ternmq.Client, start: Any, told: Start
) -> None:
    async with mq.consumer("orders", group="billing", start=start):
        pass

    assert broker.joins[0].start == told


async def test_a_start_without_effect_is_warned_about(
    broker: FakeBroker, mq: ternmq.Client, caplog: pytest.LogCaptureFixture
) -> None:
    broker.known_group = True
    async with mq.consumer("orders", group="billing", start="latest"):
        pass

    assert "start has no effect" in caplog.text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"start": "now"}, "start is 'now'"),
        ({"start": datetime(2026, 1, 1)}, "has no time zone"),
        ({"start": -1}, "start is -1"),
        ({"prefetch": 0}, "prefetch is 0; it can be 1 to"),
        ({"prefech": 1}, "did you mean 'prefetch'?"),
    ],
)
async def test_a_wrong_option_of_consumer_is_named(
    mq: ternmq.Client, options: Any, text: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        mq.consumer("orders", group="billing", **options)

    assert text in str(caught.value)


async def test_bad_names_are_refused(mq: ternmq.Client) -> None:
    with pytest.raises(BadName):
        mq.consumer("orders", group="bil ling")
    with pytest.raises(BadRequest):
        mq.consumer([], group="billing")
    with pytest.raises(BadRequest):
        mq.consumer(["a", "a"], group="billing")


async def test_flushing_without_a_broker_ends_in_time(broker: FakeBroker) -> None:
    async with ternmq.connect(broker.url, request_timeout=0.3) as mq:
        await mq.send("orders", b"x")
        async with mq.consumer("orders", group="billing") as consumer:
            [message] = await take(consumer, 1)
            message.ack()
            broker.behave(Command.ACK, lambda peer, frame: True)
            with pytest.raises(Unavailable, match="did not confirm"):
                await consumer.flush()


def test_acks_are_never_late() -> None:
    """Q13: at most 5 s late."""
    assert ACK_DELAY_S <= 5


async def test_a_batch_that_arrives_damaged_is_given_back(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    await mq.send("orders", b"damaged")
    await mq.send("orders", b"sound")
    broker.batches["orders"][0][-8] ^= 1
    async with mq.consumer("orders", group="billing") as consumer:
        [message] = await take(consumer, 1)
        assert message.body == b"sound"
        await until(lambda: done_ranges(broker, "retry") == [(1, 0, 1)])


async def test_flushing_when_the_answer_is_there_already_ends(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    """An answered request whose callback did not run yet must not keep the loop from running it."""
    await mq.send("orders", b"x")
    async with mq.consumer("orders", group="billing") as consumer:
        [message] = await take(consumer, 1)
        acks = next(iter(consumer._subscriptions))._acks
        message.retry(after=60)  # Does not ride on a pull.
        acks.send_now()
        [answer] = acks._sending
        flushing = asyncio.create_task(consumer.flush())
        await asyncio.sleep(0)
        answer.set_result(bytearray())
        await asyncio.wait_for(flushing, 5)
        await asyncio.wait_for(consumer.flush(), 5)
