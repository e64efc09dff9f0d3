"""Errors that nobody thought of, injected where nobody waits: the application hears of each."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

import ternmq
from ternmq.client.consuming.ack_sender import AckSender
from ternmq.client.consuming.lease_renewal import LeaseRenewal
from ternmq.client.consuming.replica_fetch import ReplicaFetch
from ternmq.client.consuming.subscription import Subscription
from ternmq.client.consuming.subscriptions import Subscriptions
from ternmq.client.producing.accumulator import OpenBatch
from ternmq.client.producing.ordered_sender import OrderedSender
from ternmq.client.producing.producer import Producer
from ternmq.client.producing.sender import Sender
from ternmq.client.spool.spool import Spool
from ternmq.client.transactions.checker import Checker
from ternmq.client.transport.link import Link
from ternmq.core.errors import TernError, Unavailable
from ternmq.core.lifecycle import Background
from ternmq.wire.numbers import Command
from tests.unit.client.fake_broker import FakeBroker, fake_broker
from tests.waiting import until


class Nobody(ZeroDivisionError):
    """Thought of this."""


def fail(*args: Any, **kwargs: Any) -> Any:
    raise Nobody("nobody thought of this")


async def fail_later(*args: Any, **kwargs: Any) -> Any:
    raise Nobody("nobody thought of this")


async def test_what_a_callback_or_a_task_raises_is_logged_and_told() -> None:
    told: list[TernError] = []
    background = Background("the part", told.append)
    with capture_logs() as logs:
        background.callback(fail)()
        await asyncio.wait([background.task(fail_later(), name="x")])
        refused = background.callback(lambda: fail_with(Unavailable("away")))
        refused()
        cancelled = background.task(asyncio.sleep(3600), name="y")
        cancelled.cancel()
        await asyncio.wait([cancelled])

    assert [error.code for error in told] == ["internal", "internal", "unavailable"]
    assert "the part failed inside ternmq, by a bug: Nobody" in str(told[0])
    assert [line["event"] for line in logs] == ["the part failed by a bug"] * 3
    assert all(line["exc_info"] is not None for line in logs)


def fail_with(error: Exception) -> None:
    raise error


Prepare = Callable[[FakeBroker, ternmq.Client], Awaitable[None]]


async def nothing(broker: FakeBroker, mq: ternmq.Client) -> None:
    """The first message is enough."""


async def cut(broker: FakeBroker, mq: ternmq.Client) -> None:
    broker.cut_all()


async def message(broker: FakeBroker, mq: ternmq.Client) -> None:
    await mq.send("orders", b"x")


@pytest.mark.parametrize(
    ("part", "name", "broken", "prepare"),
    [
        (Subscription, "_arrived", fail, message),
        (Subscription, "_complete", fail, message),
        (Subscription, "_read", fail, message),
        (Subscription, "_stay", fail_later, nothing),
        (Subscription, "_join", fail_later, cut),
        (LeaseRenewal, "renew_now", fail, nothing),
        (LeaseRenewal, "_renewed", fail, message),
        (Subscription, "_pull_failed", fail, cut),
        (Subscriptions, "_join", fail_later, nothing),
    ],
)
async def test_a_consumer_raises_what_failed_beside_it(
    part: type,
    name: str,
    broken: Callable[..., Any],
    prepare: Prepare,
    broker: FakeBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would wait for ever, and its messages with it."""
    broker.lease_ms = 300  # Renewed ten times a second.
    async with ternmq.connect(broker.url) as mq, mq.consumer("orders", group="g") as consumer:
        if name == "_stay":
            [subscription] = consumer._subscriptions
            monkeypatch.setattr(part, name, broken)
            subscription._background.task(subscription._stay(), name="again")
        else:
            monkeypatch.setattr(part, name, broken)
        if part is Subscriptions:
            consumer._subscriptions._joined.clear()
            consumer._subscriptions._look()
        await prepare(broker, mq)
        with pytest.raises(TernError, match="a consumer failed inside ternmq, by a bug"):
            async for got in consumer:
                assert name == "_renewed", got
        monkeypatch.undo()


@pytest.mark.parametrize("name", ["_send", "_look_for_late"])
async def test_a_consumer_raises_what_failed_while_acks_were_sent(
    name: str, broker: FakeBroker, mq: ternmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await mq.send("orders", b"x")
    async with mq.consumer("orders", group="g", ordered=True) as consumer:
        got = await anext(consumer)
        monkeypatch.setattr(AckSender, name, fail)
        got.ack()
        with pytest.raises(TernError, match="a consumer failed inside ternmq"):
            await anext(consumer)
        monkeypatch.undo()


async def test_a_consumer_raises_what_failed_while_bytes_were_fetched(
    broker: FakeBroker, mq: ternmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReplicaFetch, "busy", True)
    monkeypatch.setattr(ReplicaFetch, "_take", fail_later)
    await mq.send("orders", b"x")
    async with mq.consumer("orders", group="g") as consumer:
        with pytest.raises(TernError, match="a consumer failed inside ternmq"):
            await anext(consumer)
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("part", "name", "broken", "options"),
    [
        (Producer, "post", fail, {}),
        (Producer, "make_batch", None, {}),
        (OpenBatch, "answer", None, {}),
        (Sender, "_pump", fail, {}),
        (Sender, "_stored", fail, {}),
        (Sender, "_connect", fail_later, {}),
        (Link, "get", fail_later, {}),
        (OrderedSender, "cut", fail, {"order_key": "k"}),
        (OrderedSender, "_ask_meta", fail_later, {"order_key": "k"}),
        (Producer, "_deadline", fail, {}),
        (OrderedSender, "_deadline", fail, {"order_key": "k"}),
    ],
)
async def test_a_sender_is_told_what_failed_beside_it(
    part: type,
    name: str,
    broken: Callable[..., Any] | None,
    options: dict[str, str],
    broker: FakeBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`SendUnknown` where the broker may have it; and the next send works."""
    async with ternmq.connect(broker.url, delivery_timeout=30) as mq:
        left = [1]
        before = getattr(part, name)

        def once(*args: Any, **kwargs: Any) -> Any:
            if left:
                left.pop()
                return (broken or fail)(*args, **kwargs)
            return before(*args, **kwargs)

        monkeypatch.setattr(part, name, once)
        with pytest.raises(TernError):
            await asyncio.wait_for(mq.send("orders", b"x", **options), 20)  # type: ignore[arg-type]
        monkeypatch.undo()
        assert (await mq.send("orders", b"y", **options)).topic == "orders"  # type: ignore[arg-type]


async def test_who_waits_for_a_spool_is_told_what_ended_it(
    broker: FakeBroker, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.behave(Command.PUBLISH_ONCE, lambda peer, frame: True)
    monkeypatch.setattr(Spool, "_drain", fail_later)
    async with ternmq.connect(broker.url, spool=str(tmp_path / "spool")) as mq:
        with pytest.raises(TernError, match="the spool failed inside ternmq"):
            await asyncio.wait_for(mq.send("orders", b"x"), 20)
        with pytest.raises(TernError, match="the spool failed inside ternmq"):
            await mq.send("orders", b"x")


async def test_a_checker_that_failed_says_so_and_goes_on(
    broker: FakeBroker, mq: ternmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Checker, "_tell", fail_later)
    mq.transaction_checker(lambda question: "commit")
    checker = mq._open().checker
    assert checker is not None
    with pytest.raises(TernError, match="the transaction checker failed inside ternmq"):
        await checker.ready()
    assert not checker._keeping.done()


@pytest.fixture
async def broker() -> Any:
    async with fake_broker() as made:
        yield made


@pytest.fixture
async def mq(broker: FakeBroker) -> Any:
    async with ternmq.connect(broker.url, app="shop") as client:
        yield client
        await until(lambda: True)
