"""Routers, middlewares, results that are sent on, and apps inside web applications."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import ternmq
from ternmq import App, Message, Router
from ternmq.batch.view import BatchView
from tests.unit.client.app.test_app import kinds
from tests.unit.client.fake_broker import FakeBroker
from tests.waiting import until

URL = "tern://127.0.0.1:1"


def noted(events: list[str], name: str) -> Any:
    @asynccontextmanager
    async def middleware(unit: Message) -> AsyncIterator[None]:
        events.append(f"{name} {unit.topic}")
        try:
            yield
        except ValueError as error:
            events.append(f"{name} saw {error}")
            raise
        events.append(f"{name} done")

    return middleware


async def test_prefixes_and_middlewares_of_routers_add_up_from_outside_in() -> None:
    events: list[str] = []
    inner = Router(prefix="order.", middlewares=[noted(events, "inner")])
    outer = Router(prefix="shop.")
    outer.include(inner, prefix="eu.")
    app = App(URL, middlewares=[noted(events, "app")])
    app.include(outer)

    @inner.subscriber("paid", group="billing", publish="billed")  # Included before it was written.
    async def bill(number: int) -> int:
        events.append(str(number))
        return number + 1

    subscriber = app.subscribers()[0]
    delivered = await app.deliver(7)

    assert subscriber.topics == ["shop.eu.order.paid"]
    assert subscriber.publish == "shop.eu.order.billed"
    assert subscriber.group == "billing"
    assert delivered.published == [8]
    assert events == [
        "app shop.eu.order.paid",
        "inner shop.eu.order.paid",
        "7",
        "inner done",
        "app done",
    ]


async def test_a_middleware_sees_what_a_handler_raised_and_may_swallow_it() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def forgiving(unit: Message) -> AsyncIterator[None]:
        try:
            yield
        except KeyError:
            events.append("forgiven")

    app = App(URL, middlewares=[forgiving, noted(events, "inner")])

    @app.subscriber("orders", group="billing")
    def bill(kind: str) -> None:
        raise {"value": ValueError, "key": KeyError}[kind](kind)

    assert (await app.deliver("value")).verdict == "retry"
    assert (await app.deliver("key")).verdict == "ack"
    assert events == ["inner orders", "inner saw value", "inner orders", "forgiven"]


def test_what_cannot_be_included_is_refused() -> None:
    router, other = Router(), Router()
    router.include(other)

    with pytest.raises(ternmq.BadRequest, match="cannot include itself"):
        other.include(router)
    with pytest.raises(ternmq.BadRequest, match="cannot include itself"):
        router.include(router)
    with pytest.raises(ternmq.BadRequest, match=r"ternmq\.Router"):
        router.include("billing")  # type: ignore[arg-type]
    with pytest.raises(ternmq.BadName):
        router.include(Router(), prefix="no good ")
    with pytest.raises(ternmq.BadRequest, match="prefix is"):
        Router(prefix=3)  # type: ignore[arg-type]
    with pytest.raises(ternmq.BadRequest, match="middlewares"):
        App(URL, middlewares=[3])  # type: ignore[list-item]
    with pytest.raises(ternmq.BadRequest, match="middlewares"):
        Router(middlewares="log")  # type: ignore[arg-type]


async def test_a_middleware_that_is_no_context_manager_fails_the_message_and_says_so() -> None:
    app = App(URL, middlewares=[lambda unit: None])

    @app.subscriber("orders", group="billing")
    def bill(message: Message) -> None: ...

    delivered = await app.deliver(b"1")

    assert delivered.verdict == "retry"
    assert "@asynccontextmanager" in delivered.reason


async def test_what_a_handler_returns_is_stored_before_its_message_is_acked(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    app = App(broker.url)

    @app.subscriber("orders", group="billing", publish="bills")
    async def bill(message: Message) -> Any:
        assert not kinds(broker)
        return {"of": message.body.decode()} if message.body != b"none" else None

    await mq.send("orders", b"none")
    await mq.send("orders", b"o-1")
    async with app:
        await until(lambda: kinds(broker) == ["ack", "ack"])

    batches = [BatchView(data) for data in broker.published]
    bodies = [batch.body(0) for batch in batches if batch.topic == "bills"]
    assert bodies == [b'{"of":"o-1"}']


async def test_an_app_runs_as_the_lifespan_of_a_web_application(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    app = App(broker.url)

    @app.subscriber("orders", group="billing")
    async def bill(message: Message) -> None: ...

    await mq.send("orders", b"o-1")
    async with app.lifespan(object()):
        await until(lambda: kinds(broker) == ["ack"])

    with pytest.raises(ternmq.Closed):
        _ = app.mq


async def test_deliver_says_which_handlers_fit_when_it_is_not_one() -> None:
    app = App(URL)

    @app.subscriber(["orders", "refunds"], group="billing")
    def bill(message: Message) -> None: ...

    @app.subscriber("orders", group="stock")
    def reserve(message: Message) -> None: ...

    with pytest.raises(ternmq.BadRequest, match=r"2 handlers fit.*bill .*reserve"):
        await app.deliver(b"1", topic="orders")
    with pytest.raises(ternmq.BadRequest, match="0 handlers fit"):
        await app.deliver(b"1", topic="parcels")
    with pytest.raises(ternmq.BadRequest, match="attempt"):
        await app.deliver(b"1", topic="refunds", attempt=0)
    assert (await app.deliver(b"1", topic="refunds")).verdict == "ack"
