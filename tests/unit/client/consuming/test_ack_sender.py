"""What became of messages: kept until told, and said when it could not be."""

import asyncio

import pytest
from structlog.testing import capture_logs

import ternmq
from ternmq.client.consuming import ack_sender
from ternmq.core.errors import Unavailable
from tests.unit.client.consuming.test_consumer import done_ranges, take
from tests.unit.client.fake_broker import FakeBroker
from tests.waiting import until


async def test_a_reason_that_utf8_cannot_write_holds_up_nothing(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    await mq.send_many("orders", [b"x"] * 4)
    async with mq.consumer("orders", group="billing") as consumer:
        messages = await take(consumer, 4)
        messages[0].ack()
        messages[1].reject(reason="odd \ud800 letter")
        messages[2].retry(after=1, reason="\udfff")
        messages[3].ack()
        await consumer.flush()

    assert sorted(done_ranges(broker)) == [(1, 0, 1), (1, 3, 4)]
    assert [done.reason for done in broker.done if done.kind == "reject"] == [r"odd \ud800 letter"]
    assert [done.reason for done in broker.done if done.kind == "retry"] == [r"\udfff"]


async def test_what_could_not_be_told_is_kept_and_flush_does_not_say_it_was(
    broker: FakeBroker, mq: ternmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(record: object) -> bytes:
        raise ZeroDivisionError("nobody thought of this")

    await mq.send_many("orders", [b"x"] * 3)
    async with mq.consumer("orders", group="billing") as consumer:
        messages = await take(consumer, 3)
        monkeypatch.setattr(ack_sender, "pack", failing)
        messages[0].ack()
        messages[1].reject()
        with pytest.raises(ZeroDivisionError):
            await consumer.flush()
        monkeypatch.undo()
        await consumer.flush()

        assert done_ranges(broker) == [(1, 0, 1)]
        assert done_ranges(broker, "reject") == [(1, 1, 2)]


async def test_waiting_in_vain_leaves_nothing_behind(mq: ternmq.Client) -> None:
    async with mq.consumer("orders", group="billing") as consumer:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(consumer), 0.001)

        assert not consumer._waiters
        await mq.send("orders", b"x")
        assert (await take(consumer, 1))[0].body == b"x"


async def test_leaving_while_the_broker_is_away_says_that_acks_may_be_lost(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    await mq.send_many("orders", [b"x"] * 3)
    consumer = await mq.consumer("orders", group="billing").start()
    messages = await take(consumer, 3)
    broker.refusal = Unavailable("not now")
    broker.cut_all()
    await until(lambda: next(iter(consumer._subscriptions))._connection is None)
    for message in messages[:2]:
        message.ack()
    with capture_logs() as logs:
        await consumer.close()

    assert [entry["rows"] for entry in logs if "acks may be lost" in entry["event"]] == [2]
    broker.refusal = None
