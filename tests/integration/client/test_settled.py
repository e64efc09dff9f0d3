"""Tests of applications: waiting for a group, turning the clock, what the log says (F15, F18)."""

from datetime import timedelta

import pytest
from structlog.testing import capture_logs

import ternmq
from ternmq.testing import TurnedClock, node, settled
from tests.waiting import until


def failing_app(url: str, seen: list[int]) -> ternmq.App:
    app = ternmq.App(url, app="shop")

    @app.subscriber("orders", group="billing", retry="fixed:5s", attempts_max=3)
    async def bill(message: ternmq.Message) -> None:
        seen.append(message.attempt)
        raise ValueError(f"no {message.attempt}")

    return app


async def test_a_clock_that_is_turned_when_the_group_is_settled_is_never_turned_too_early() -> None:
    """F15: without it the retry was not at the broker yet, and the test hung."""
    clock, seen = TurnedClock(), list[int]()
    async with node(clock=clock) as url, failing_app(url, seen) as app:
        await app.mq.send("orders", b"x")
        for attempt in (1, 2):
            line = await settled(app.mq, "orders", "billing")
            assert (line.waiting_retry, seen[-1]) == (1, attempt)
            clock.turn(timedelta(seconds=6))
            await until(lambda attempt=attempt: len(seen) == attempt + 1)  # type: ignore[misc]
        assert (await settled(app.mq, "orders", "billing")).dead == 1


async def test_what_is_not_settled_in_time_is_said() -> None:
    async with (
        node() as url,
        ternmq.connect(url) as mq,
        mq.consumer("orders", group="g") as consumer,
    ):
        await mq.send("orders", b"x")
        message = await anext(consumer)
        with pytest.raises(ternmq.Unavailable, match="has still 1 messages ready or in hand"):
            await settled(mq, "orders", "g", timeout=0.05)
        with pytest.raises(ternmq.Unavailable, match="group 'nobody' of 'orders' is not there"):
            await settled(mq, "orders", "nobody", timeout=0)
        with pytest.raises(ternmq.BadRequest, match="mq is 5; it can be a Client"):
            await settled(5, "orders", "g")  # type: ignore[call-overload]
        message.ack()
        assert (await settled(mq, "orders", "g")).acked == 1


async def test_a_released_message_comes_again_as_it_was() -> None:
    """No attempt counts, nothing is waited for."""
    async with (
        node() as url,
        ternmq.connect(url) as mq,
        mq.consumer("orders", group="g", prefetch=1) as consumer,
    ):
        await mq.send_many("orders", [b"x", b"y"])
        first = await anext(consumer)
        await first.release()
        seen = []
        for _ in range(2):
            message = await anext(consumer)
            seen.append((message.body, message.attempt))
            await message.ack()
        assert sorted(seen) == [(b"x", 1), (b"y", 1)]


async def test_a_failing_handler_shows_its_traceback_once_and_says_when_it_was_the_last() -> None:
    """F18."""
    clock, seen = TurnedClock(), list[int]()
    with capture_logs() as logs:
        async with node(clock=clock) as url, failing_app(url, seen) as app:
            await app.mq.send("orders", b"x")
            for attempt in (1, 2):
                await settled(app.mq, "orders", "billing")
                clock.turn(6)
                await until(lambda attempt=attempt: len(seen) == attempt + 1)  # type: ignore[misc]
            await settled(app.mq, "orders", "billing")
    lines = [each for each in logs if each["event"] == "handler failed"]
    assert [each["attempt"] for each in lines] == [1, 2, 3]
    assert 'raise ValueError(f"no {message.attempt}")' in lines[0]["stack"]
    assert ["stack" in each for each in lines] == [True, False, False]
    assert [each.get("outcome") for each in lines] == [None, None, "dead letter now"]
