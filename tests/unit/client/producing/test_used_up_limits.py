"""What a producer does when a broker says that a limit is used up."""

import asyncio
import time

import pytest

import ternmq
from ternmq.batch.view import BatchView
from ternmq.core.errors import OverLimit, Paused, PutAside
from ternmq.rpc.server import Peer
from ternmq.wire.frame import Frame
from ternmq.wire.numbers import Command
from tests.unit.client.fake_broker import FakeBroker, fake_broker


async def test_a_told_wait_is_waited_and_not_seen(broker: FakeBroker, mq: ternmq.Client) -> None:
    """J13: refused sends get the wait; the same bytes go again when it is over."""
    broker.refuse(Command.PUBLISH, OverLimit("slow down", wait_ms=60), times=5)
    began = time.monotonic()
    receipt = await mq.send("orders", b"paid")

    assert receipt.sequence == 0
    assert time.monotonic() - began >= 0.3
    assert len(broker.published) == 6
    assert len(set(broker.published)) == 1


async def test_a_wait_that_does_not_fit_the_time_out_is_told_at_once(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    broker.refuse(Command.PUBLISH, OverLimit("slow down", wait_ms=3_600_000))
    with pytest.raises(OverLimit) as raised:
        await asyncio.wait_for(mq.send("orders", b"paid"), 5)

    assert raised.value.wait == 3600
    assert len(broker.published) == 1
    assert mq.stats().failed == 1


async def test_time_that_is_up_while_refused_is_a_refusal_and_not_unknown() -> None:
    async with fake_broker() as broker:
        broker.refuse(Command.PUBLISH, OverLimit("slow down", wait_ms=50))
        async with ternmq.connect(broker.url, app="shop", delivery_timeout=0.3) as mq:
            with pytest.raises(OverLimit):
                await mq.send("orders", b"paid")
            assert (mq.stats().failed, mq.stats().unknown) == (1, 0)


async def test_behind_a_refused_batch_everything_of_its_topic_waits_and_keeps_its_order(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    arrived: list[bytes] = []

    def behave(peer: Peer, frame: Frame) -> bool:
        body = next(iter(BatchView(frame.payload).bodies()))
        arrived.append(body)
        if len(arrived) == 1:
            peer.fail(frame.command, frame.correlation, OverLimit("slow down", wait_ms=200))
            return True
        return False

    broker.behave(Command.PUBLISH, behave)
    first = asyncio.create_task(mq.send("orders", b"1"))
    await asyncio.sleep(0.05)
    second = asyncio.create_task(mq.send("orders", b"2"))
    other = await mq.send("other", b"x")

    assert not first.done()
    assert not second.done()
    assert [(await first).sequence, (await second).sequence, other.sequence] == [0, 1, 0]
    assert arrived == [b"1", b"x", b"1", b"2"]


async def test_what_was_put_aside_is_not_sent_again(broker: FakeBroker, mq: ternmq.Client) -> None:
    """D10: the broker has it; sending it again would double it."""
    broker.refuse(Command.PUBLISH, PutAside("put aside"))
    with pytest.raises(PutAside) as raised:
        await mq.send("orders", b"paid")

    assert isinstance(raised.value, OverLimit)
    assert not raised.value.retryable
    assert len(broker.published) == 1


async def test_a_paused_topic_is_tried_three_times_and_told(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    broker.refuse(Command.PUBLISH, Paused("paused"))
    with pytest.raises(Paused):
        await mq.send("orders", b"paid")

    assert len(broker.published) == 3
