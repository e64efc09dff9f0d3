"""Handlers by decorator: tasks, threads, settling by how they end, stopping."""

import asyncio
import os
import signal
import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

import ternmq
from ternmq.core.errors import BadName, BadRequest
from tests.unit.client.fake_broker import FakeBroker
from tests.waiting import until


def kinds(broker: FakeBroker) -> list[str]:
    return sorted(done.kind for done in broker.done for _ in range(done.end - done.first))


async def test_returning_acks_and_raising_retries(broker: FakeBroker, mq: ternmq.Client) -> None:
    """Q14: a handler that raises: the message comes again after 5 s by default."""
    app = ternmq.App(broker.url, app="shop")

    @app.subscriber("orders", group="billing", concurrency=4)
    async def bill(message: ternmq.Message) -> None:
        if message.body == b"bad":
            raise ValueError("no such account")

    await mq.send_many("orders", [b"good", b"bad", b"good"])
    async with app:
        await until(lambda: len(kinds(broker)) == 3)

    assert kinds(broker) == ["ack", "ack", "retry"]
    [retry] = [done for done in broker.done if done.kind == "retry"]
    assert (retry.first, retry.after_ms, retry.reason) == (1, -1, "ValueError: no such account")


async def test_plain_functions_run_in_threads(broker: FakeBroker, mq: ternmq.Client) -> None:
    """Q17: the pool is configurable; four at once, or the barrier never opens."""
    app = ternmq.App(broker.url)
    barrier = threading.Barrier(4, timeout=10)
    threads: set[str] = set()

    @app.subscriber("orders", group="billing", concurrency=4)
    def bill(message: ternmq.Message) -> None:
        barrier.wait()
        threads.add(threading.current_thread().name)

    await mq.send_many("orders", [b"x"] * 4)
    async with app:
        await until(lambda: kinds(broker) == ["ack"] * 4)

    assert len(threads) == 4
    assert threading.current_thread().name not in threads


async def test_concurrency_bounds_the_handlers(broker: FakeBroker, mq: ternmq.Client) -> None:
    app = ternmq.App(broker.url)
    running = most = 0

    @app.subscriber("orders", group="billing", concurrency=3)
    async def bill(message: ternmq.Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    await mq.send_many("orders", [b"x"] * 30)
    async with app:
        await until(lambda: len(kinds(broker)) == 30)

    assert most == 3


async def test_a_handler_may_settle_by_itself(broker: FakeBroker, mq: ternmq.Client) -> None:
    app = ternmq.App(broker.url)

    @app.subscriber("orders", group="billing")
    async def bill(message: ternmq.Message) -> None:
        message.reject("not ours")

    await mq.send("orders", b"x")
    async with app:
        await until(lambda: broker.done)

    assert kinds(broker) == ["reject"]


async def test_local_retries_come_before_giving_back(broker: FakeBroker, mq: ternmq.Client) -> None:
    app = ternmq.App(broker.url)
    calls = 0

    @app.subscriber("orders", group="billing", local_retries=2)
    async def bill(message: ternmq.Message) -> None:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise ValueError("not yet")

    await mq.send("orders", b"x")
    async with app:
        await until(lambda: broker.done)

    assert calls == 3
    assert kinds(broker) == ["ack"]


async def test_several_topics_and_handlers(broker: FakeBroker, mq: ternmq.Client) -> None:
    """R24: one subscriber, several topics; handlers may send."""
    app = ternmq.App(broker.url, codec="json")
    seen: list[Any] = []

    @app.subscriber(["orders", "refunds"], group="billing")
    async def bill(message: ternmq.Message) -> None:
        await app.mq.send("billed", {"topic": message.topic, "was": message.value})

    @app.subscriber("billed", group="audit")
    async def audit(message: ternmq.Message) -> None:
        seen.append(message.value)

    await mq.send("orders", 1, codec="json")
    await mq.send("refunds", 2, codec="json")
    async with app:
        await until(lambda: len(seen) == 2)

    assert sorted(each["was"] for each in seen) == [1, 2]


async def test_stopping_waits_for_running_handlers(broker: FakeBroker, mq: ternmq.Client) -> None:
    app = ternmq.App(broker.url)
    started, finish = asyncio.Event(), asyncio.Event()

    @app.subscriber("orders", group="billing")
    async def bill(message: ternmq.Message) -> None:
        started.set()
        await finish.wait()

    await mq.send_many("orders", [b"x"] * 5)
    await app.start()
    await started.wait()
    stopping = asyncio.create_task(app.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    await until(lambda: kinds(broker) == ["back"] * 4)  # What was only fetched waits for nobody.
    finish.set()
    await stopping

    assert kinds(broker) == ["ack"] + ["back"] * 4
    assert broker.left == 1


async def test_run_ends_at_sigterm(broker: FakeBroker) -> None:
    app = ternmq.App(broker.url)

    @app.subscriber("orders", group="billing")
    async def bill(message: ternmq.Message) -> None: ...

    running = asyncio.create_task(app.serve())
    await until(lambda: broker.joins)
    os.kill(os.getpid(), signal.SIGTERM)
    await running

    assert broker.left == 1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # The next one is not ignored.


async def test_a_subscription_that_breaks_ends_the_app_with_the_reason(
    broker: FakeBroker,
) -> None:
    app = ternmq.App(broker.url)

    @app.subscriber("orders", group="billing")
    async def bill(message: ternmq.Message) -> None: ...

    broker.refuse(51, ternmq.GroupNotFound("the group was deleted"))
    with pytest.raises(ternmq.GroupNotFound), capture_logs() as logs:
        await app.serve()
    assert "a handler gets no more messages" in [entry["event"] for entry in logs]


def test_wrong_options_are_named_where_they_are_written() -> None:
    app = ternmq.App("tern://127.0.0.1:7700")
    with pytest.raises(BadRequest, match="did you mean 'concurrency'"):
        app.subscriber("orders", group="billing", concurency=3)  # type: ignore[call-arg]
    with pytest.raises(BadRequest, match="concurrency is 0"):
        app.subscriber("orders", group="billing", concurrency=0)
    with pytest.raises(BadName):
        app.subscriber("or ders", group="billing")


async def test_an_exception_whatever_its_text_is_a_reason(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    app = ternmq.App(broker.url, app="shop")

    @app.subscriber("orders", group="billing")
    async def bill(message: ternmq.Message) -> None:
        if message.body == b"odd":
            raise ValueError("\ud800")
        if message.body == b"mute":
            raise Mute

    await mq.send_many("orders", [b"odd", b"mute", b"good"])
    async with app:
        await until(lambda: len(kinds(broker)) == 3)

    assert kinds(broker) == ["ack", "retry", "retry"]
    assert sorted(done.reason for done in broker.done if done.kind == "retry") == [
        "Mute: a Mute that cannot be shown: RuntimeError",
        r"ValueError: \ud800",
    ]


async def test_what_does_not_finish_in_time_is_given_back(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    app = ternmq.App(broker.url, drain_timeout=0.05)
    started = threading.Semaphore(0)
    cancelled = asyncio.Event()

    @app.subscriber("orders", group="billing")
    async def bill(message: ternmq.Message) -> None:
        started.release()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    @app.subscriber("refunds", group="billing")
    def refund(message: ternmq.Message) -> None:
        started.release()
        threading.Event().wait()  # For ever; the thread is a daemon.

    await mq.send("orders", b"x")
    await mq.send("refunds", b"x")
    async with app:
        await asyncio.to_thread(started.acquire)
        await asyncio.to_thread(started.acquire)

    assert cancelled.is_set()
    assert kinds(broker) == []
    assert broker.left == 2


async def test_a_second_signal_does_not_wait_for_handlers(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    app = ternmq.App(broker.url, drain_timeout=3600)
    started = asyncio.Event()

    @app.subscriber("orders", group="billing")
    async def bill(message: ternmq.Message) -> None:
        started.set()
        await asyncio.Event().wait()

    await mq.send("orders", b"x")
    running = asyncio.create_task(app.serve())
    await started.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await until(lambda: not app._tasks)
    assert not running.done()
    os.kill(os.getpid(), signal.SIGTERM)
    await running

    assert broker.left == 1
    assert kinds(broker) == []


async def test_no_more_is_pulled_while_stopping(broker: FakeBroker, mq: ternmq.Client) -> None:
    app = ternmq.App(broker.url)
    started, finish = asyncio.Event(), asyncio.Event()

    @app.subscriber("orders", group="billing")
    async def bill(message: ternmq.Message) -> None:
        started.set()
        await finish.wait()

    await mq.send("orders", b"x")
    await app.start()
    await started.wait()
    stopping = asyncio.create_task(app.stop())
    await until(lambda: not app._tasks)
    await asyncio.sleep(0)
    pulls = len(broker.pulls)
    await mq.send_many("orders", [b"x"] * 5)
    finish.set()
    await stopping

    assert len(broker.pulls) == pulls
    assert kinds(broker).count("ack") == 1  # What a waiting pull still brought went back.
