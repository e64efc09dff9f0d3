"""What a block of a transaction does with everything `send` takes, and with mistakes (R11)."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import ternmq
from ternmq import Rollback
from ternmq.client.transactions.half_sender import HalfSender
from ternmq.testing import TurnedClock, node
from tests.integration.delivery.test_delivery import take
from tests.integration.transactions.test_half_messages import bodies, mq, unknown, url
from tests.waiting import until

__all__ = ["mq", "url"]  # Fixtures.


async def test_every_option_of_send_is_kept(mq: ternmq.Client) -> None:
    """Filters, order, priority and properties see a committed message like any other."""
    mq.transaction_checker(unknown)
    await mq.admin.create_topic("orders")
    tagged = mq.consumer("orders", group="tagged", tag="vip")
    large = mq.consumer("orders", group="large", filter="amount > 10")
    ordered = mq.consumer("orders", group="ordered", ordered=True)
    async with tagged as first, large as second, ordered as third:
        async with mq.transaction() as tx:
            await tx.send("orders", b"a", tag="vip", properties={"amount": 5}, order_key="k")
            rows = [
                ternmq.Outgoing(body=b"b", tag="std", properties={"amount": 50}, order_key="k"),
                ternmq.Outgoing(body=b"c", key="o-3", priority=7, order_key="k"),
            ]
            await tx.send_many("orders", rows)
        [vip] = await take(first, 1)
        assert (vip.body, vip.tag, vip.properties) == (b"a", "vip", {"amount": 5})
        [much] = await take(second, 1)
        assert much.body == b"b"
        for body in (b"a", b"b", b"c"):  # The next of a key comes when this one is acked.
            [message] = await take(third, 1)
            assert (message.body, message.order_key) == (body, "k")
            await message.ack()
    with pytest.raises(ternmq.BadRequest, match="delayed"):
        tx = mq.transaction()
        await tx.send_many("orders", [b"now", ternmq.Outgoing(body=b"later", delay_ms=10)])


async def test_a_message_that_outlived_its_time_before_the_commit_is_expired(
    mq: ternmq.Client,
) -> None:
    """`ttl` counts from the send, also for half messages."""
    mq.transaction_checker(unknown)
    async with mq.transaction() as tx:
        await tx.send("orders", b"short", ttl=0.001, immunity=60)
        await tx.send("orders", b"long", ttl=3_600)
        await asyncio.sleep(0.01)
    async with mq.consumer("orders", group="g", start="earliest") as consumer:
        [message] = await take(consumer, 1)
        assert message.body == b"long"

        async def expired() -> bool:
            [line] = await mq.admin.ledger("orders", "g")
            return (line.total, line.expired) == (2, 1)

        await until(expired, "the other is expired")


async def test_times_resets_and_replays_see_the_commit_not_the_staging(tmp_path: Path) -> None:
    """A committed message was stored when it was committed; undecided ones are nowhere."""
    clock = TurnedClock()
    running = node(data_dir=tmp_path, clock=clock)
    async with running as address, ternmq.connect(address, app="shop") as mq:
        mq.transaction_checker(unknown)
        late, never, gone = [mq.transaction(first_check=3_600) for _ in range(3)]
        for tx in (late, never, gone):
            await tx.send("orders", b"half")
        await mq.send("orders", b"plain")
        clock.turn(600)
        middle = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
        clock.turn(600)
        await late.commit()
        await gone.rollback()
        found = [m async for m in mq.read("orders", start=middle)]
        assert [(m.sequence, m.body) for m in found] == [(1, b"half")]
        assert found[0].stored_at > middle
        async with mq.consumer("orders", group="g", start=middle) as consumer:
            [message] = await take(consumer, 1)
            assert (message.sequence, message.stored_at) == (1, found[0].stored_at)
            await message.ack()
        await mq.admin.reset_group("orders", "g", ternmq.Start(at="earliest"))
        async with mq.consumer("orders", group="g") as consumer:
            again = await take(consumer, 2)
            assert [m.body for m in again] == [b"plain", b"half"]
            for message in again:
                await message.ack()
        [line] = await mq.admin.ledger("orders", "g")
        assert (line.total, line.acked) == (2, 2)


async def test_messages_that_are_sent_at_once_stay_on_one_group(
    mq: ternmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    mq.transaction_checker(unknown)
    group, calls = HalfSender.group, 0

    async def another(sender: HalfSender, wanted: str | None) -> str:
        nonlocal calls
        calls += 1
        return await group(sender, wanted) if calls == 1 else "another"

    monkeypatch.setattr(HalfSender, "group", another)
    async with mq.transaction() as tx:
        await asyncio.gather(*(tx.send("orders", b"%d" % number) for number in range(5)))
    assert {receipt.broker_group for receipt in tx.receipts} == {tx.receipts[0].broker_group}
    assert len(await bodies(mq, "orders")) == 5


async def test_rolling_back_what_is_committed_is_told(mq: ternmq.Client) -> None:
    mq.transaction_checker(unknown)
    with pytest.raises(ternmq.BadRequest, match="committed already"):
        async with mq.transaction() as tx:
            await tx.send("orders", b"one")
            await tx.commit()
            raise Rollback
    async with mq.transaction() as tx:
        await tx.send("orders", b"two")
        await tx.rollback()
        raise Rollback  # Twice is harmless.
    assert await bodies(mq, "orders") == [b"one"]


async def test_a_block_that_hid_a_failed_send_is_not_committed(
    mq: ternmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All or nothing: nobody knows whether the message is there, so the checker decides."""
    mq.transaction_checker(lambda question: "rollback")

    async def lost(*_: Any) -> None:
        raise ternmq.SendUnknown("no answer")

    with pytest.raises(ternmq.BadRequest, match="'bills' could not be stored"):
        async with mq.transaction(first_check=60) as tx:
            await tx.send("orders", b"one")
            with monkeypatch.context() as patch:
                patch.setattr("ternmq.client.transactions.half_sender.HalfSender.spread", lost)
                with pytest.raises(ternmq.SendUnknown):
                    await tx.send("bills", b"two")
    assert tx.state == "unknown"
    await tx.rollback()
    assert await bodies(mq, "orders") == []
    async with mq.transaction() as tx:
        with pytest.raises(ternmq.BadName):
            await tx.send("no such/topic", b"refused for certain")
        await tx.send("orders", b"three")
    assert await bodies(mq, "orders") == [b"three"]


async def test_mistakes_are_told(mq: ternmq.Client) -> None:
    with pytest.raises(ternmq.BadRequest, match="a function, not"):
        mq.transaction_checker("commit")  # type: ignore[arg-type]
    mq.transaction_checker(unknown)
    for wrong in ({"first_check": 0}, {"first_check": "6"}, {"checks_max": 0.5}):
        with pytest.raises(ternmq.BadRequest, match=next(iter(wrong))):
            mq.transaction(**wrong)
    tx = mq.transaction(first_check=timedelta(seconds=1))
    with pytest.raises(ternmq.BadRequest, match="immunity"):
        await tx.send("orders", b"one", immunity=-1)
    with pytest.raises(ternmq.BadRequest, match="hex"):
        await mq.admin.end_half("abc", "commit")


async def test_a_broker_group_that_does_not_exist_is_refused_at_once_by_name(
    mq: ternmq.Client,
) -> None:
    mq.transaction_checker(unknown)
    told = r"no broker group 'mian'; there are: main"
    async with asyncio.timeout(5):
        with pytest.raises(ternmq.BadRequest, match=told):
            async with mq.transaction(broker_group="mian") as tx:
                await tx.send("orders", b"a")
        with pytest.raises(ternmq.BadRequest, match=told):
            await mq.detached("task", broker_group="mian").send("orders", b"a")
        with pytest.raises(ternmq.BadRequest, match=told):
            await mq.commit_detached("task", [0], broker_group="mian")
        async with mq.transaction(broker_group="main") as tx:
            await tx.send("orders", b"a")
    assert await bodies(mq, "orders") == [b"a"]
