"""Where handlers run, and what happens when they take too long."""

import asyncio
import threading

import ternmq
from tests.unit.client.app.test_app import kinds
from tests.unit.client.fake_broker import FakeBroker
from tests.waiting import until


async def test_a_coroutine_over_its_time_is_cancelled_and_retried(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    app = ternmq.App(broker.url)
    cancelled = asyncio.Event()

    @app.subscriber("orders", group="billing", timeout=0.05, local_retries=3)
    async def bill(message: ternmq.Message) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    await mq.send("orders", b"x")
    async with app:
        await until(lambda: broker.done)

    assert cancelled.is_set()
    assert kinds(broker) == ["retry"]
    assert broker.done[0].reason == "TimedOut: no result within 0.05 s"


async def test_a_time_out_of_the_handlers_own_is_an_ordinary_failure(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    app = ternmq.App(broker.url)

    @app.subscriber("orders", group="billing", timeout=10)
    async def bill(message: ternmq.Message) -> None:
        raise TimeoutError("the bank")

    await mq.send("orders", b"x")
    async with app:
        await until(lambda: broker.done)

    assert broker.done[0].reason == "TimeoutError: the bank"


async def test_a_thread_over_its_time_is_retried_and_keeps_its_slot_until_it_ends(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    app = ternmq.App(broker.url)
    let_go = threading.Event()
    handled: list[bytes] = []

    @app.subscriber("orders", group="billing", concurrency=2, timeout=0.05)
    def bill(message: ternmq.Message) -> None:
        if message.body == b"slow":
            let_go.wait(20)
        handled.append(message.body)

    await mq.send("orders", b"slow")
    async with app:
        await until(lambda: kinds(broker) == ["retry"])
        [handler_loop] = app._handler_loops
        assert handler_loop.stuck == 1
        await mq.send_many("orders", [b"quick"] * 3)
        await until(lambda: len(kinds(broker)) == 4)  # The other thread goes on alone.
        let_go.set()
        await until(lambda: handler_loop.stuck == 0)

    assert kinds(broker) == ["ack"] * 3 + ["retry"]
    assert handled == [b"quick"] * 3 + [b"slow"]


async def test_a_quick_plain_function_may_run_on_the_loop(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    app = ternmq.App(broker.url)
    threads: set[int] = set()

    @app.subscriber("orders", group="billing", pool="tasks")
    def bill(message: ternmq.Message) -> None:
        threads.add(threading.get_ident())

    await mq.send("orders", b"x")
    async with app:
        await until(lambda: kinds(broker) == ["ack"])

    assert threads == {threading.get_ident()}


async def test_whatever_a_thread_raises_is_a_failure_and_the_thread_goes_on(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    app = ternmq.App(broker.url)

    @app.subscriber("orders", group="billing")
    def bill(message: ternmq.Message) -> None:
        if message.body == b"exit":
            raise SystemExit(3)
        if message.body == b"stop":
            raise StopIteration

    await mq.send_many("orders", [b"exit", b"stop", b"good"])
    async with app:
        await until(lambda: len(kinds(broker)) == 3)

    assert kinds(broker) == ["ack", "retry", "retry"]


async def test_leases_are_renewed_while_a_handler_blocks_its_thread(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    broker.lease_ms = 60
    app = ternmq.App(broker.url)
    let_go = threading.Event()

    @app.subscriber("orders", group="billing")
    def bill(message: ternmq.Message) -> None:
        let_go.wait(20)

    await mq.send("orders", b"x")
    async with app:
        await until(lambda: len(broker.renewals) >= 10)
        let_go.set()

    assert kinds(broker) == ["ack"]
