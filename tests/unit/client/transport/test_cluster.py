"""Finding brokers, and coming back to them."""

import asyncio
from typing import Any, cast

import pytest

import ternmq
from ternmq.client.transport.link import BACK_OFF_MAX_S, BACK_OFF_MIN_S, back_off
from ternmq.client.transport.retrying_request import RetryingRequest
from ternmq.core.errors import BadRequest, Unauthorized, Unavailable
from ternmq.rpc.server import Peer
from ternmq.wire.frame import Frame
from ternmq.wire.messages.groups import Start
from ternmq.wire.messages.read import Seek, Sought
from ternmq.wire.numbers import Command
from tests.unit.client.fake_broker import FakeBroker
from tests.waiting import until


def test_waiting_grows_to_two_seconds_and_no_further() -> None:
    for failures in range(100):
        longest = min(BACK_OFF_MIN_S * 2**failures, BACK_OFF_MAX_S)
        assert longest / 2 <= back_off(failures) <= longest


async def test_a_message_waits_until_a_broker_is_there(broker: FakeBroker) -> None:
    broker.announced = False
    async with ternmq.connect(broker.url) as mq:
        sends = [asyncio.create_task(mq.send("orders", b"x")) for _ in range(3)]
        many = asyncio.create_task(mq.send_many("orders", [b"y"] * 3))
        mq.send_nowait("orders", b"z")
        await until(lambda: mq.stats().buffered == 7)
        broker.announced = True
        await asyncio.gather(*sends, many)
        await mq.flush()

        assert mq.stats().sent == 7


async def test_no_broker_in_time_is_said(broker: FakeBroker) -> None:
    broker.announced = False
    async with ternmq.connect(broker.url, delivery_timeout=0.2) as mq:
        with pytest.raises(Unavailable, match="knows no broker"):
            await mq.send("orders", b"x")
        with pytest.raises(Unavailable, match="knows no broker"):
            await mq.send_many("orders", [b"x"])
        with pytest.raises(Unavailable, match="knows no broker"):
            await mq.consumer("orders", group="billing").start()
        assert mq.stats().buffered == 0


async def test_an_application_that_is_not_let_in_is_told_at_once(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    broker.refusal = Unauthorized("not you")
    with pytest.raises(Unauthorized, match="not you"):
        await mq.send("orders", b"x")


async def test_a_consumer_that_joins_during_a_restart_waits_a_moment(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    left = 2

    def not_yet(peer: Peer, frame: Frame) -> bool:
        nonlocal left
        left -= 1
        if left >= 0:
            peer.fail(frame.command, frame.correlation, Unavailable("the broker is starting"))
            return True
        return False

    broker.behave(Command.JOIN, not_yet)
    async with mq.consumer("orders", group="billing"):
        pass

    assert len(broker.joins) == 1


async def test_a_question_on_a_connection_that_dies_is_asked_once_more(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    """The first call after a restart must not fail because the old connection is gone."""
    await mq.send("orders", b"x")
    asked = 0

    def die_once(peer: Peer, frame: Frame) -> bool:
        nonlocal asked
        asked += 1
        if asked == 1:
            peer.abort()
        return asked == 1

    broker.behave(Command.SEEK, die_once)
    assert (await mq.admin.seek("orders", ternmq.Start())).end == 1
    asked = 0
    broker.behave(Command.TOPIC_LIST, die_once)
    await mq.admin.topics()
    assert asked == 2


async def test_an_order_that_may_have_been_heard_is_not_given_twice(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    asked = 0

    def die(peer: Peer, frame: Frame) -> bool:
        nonlocal asked
        asked += 1
        peer.abort()
        return True

    broker.behave(Command.GROUP_RESET, die)
    with pytest.raises(Unavailable):
        await mq.admin.reset_group("orders", "billing", ternmq.Start())
    assert asked == 1


async def test_a_request_that_no_server_could_read_is_not_sent(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    """B7: the server would close the connection that everybody shares."""
    cluster = mq.cluster
    wrong = Seek(topic=cast("Any", 5), start=Start())
    link = cluster.broker("main")
    connection = await link.get()

    with pytest.raises(BadRequest, match="topic is 5; it can be a text"):
        await cluster.ask(link, Command.SEEK, wrong, Sought)
    with pytest.raises(BadRequest, match="topic is 5; it can be a text"):
        await cluster.ask_meta(Command.SEEK, wrong, Sought)
    retrying = RetryingRequest(mq.config, "a question")
    with pytest.raises(BadRequest, match="topic is 5; it can be a text"):
        await retrying.ask_record(link, Command.SEEK, wrong, Sought)

    assert await link.get() is connection
    assert not connection.closed
