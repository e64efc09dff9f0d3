"""Errors that nobody thought of, injected into tasks of servers: whoever asked is answered."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

import ternmq
from ternmq.broker.acks.dead_letters import DeadLetterWriter
from ternmq.broker.delivery.lookup import BatchLookup
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import TernError
from ternmq.delay.dispatching.broker_senders import BrokerSender
from ternmq.delay.intake.accept import Acceptor
from ternmq.testing import node
from tests.waiting import until


def failing_once(before: Callable[..., Any]) -> Callable[..., Any]:
    """Fails the first time, then does what it did."""
    left = [1]

    async def called(*args: Any, **kwargs: Any) -> Any:
        if left:
            left.pop()
            raise ZeroDivisionError("nobody thought of this")
        return await before(*args, **kwargs)

    return called


async def test_a_first_send_that_fails_by_a_bug_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TopicNames, "auto_create", failing_once(TopicNames.auto_create))
    async with node() as url, ternmq.connect(url, request_timeout=60) as mq:
        with capture_logs() as logs, pytest.raises(TernError):
            await asyncio.wait_for(mq.send("orders", b"x"), 30)
        assert (await mq.send("orders", b"x")).sequence == 0

    assert any(line["event"] == "request failed by a bug" for line in logs)


async def test_a_delayed_one_too_and_its_dispatch_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with node() as url, ternmq.connect(url, request_timeout=60) as mq:
        accept = Acceptor._accept
        left = [1]

        def once(*args: Any) -> None:
            if left:
                left.pop()
                raise ZeroDivisionError("nobody thought of this")
            accept(*args)

        monkeypatch.setattr(Acceptor, "_accept", once)
        monkeypatch.setattr(BrokerSender, "_try", failing_once(BrokerSender._try))
        with capture_logs() as logs:
            with pytest.raises(TernError):
                await asyncio.wait_for(mq.send("orders", b"x", delay=0.1), 30)
            receipt = await mq.send("orders", b"x", delay=0.1)
            async with mq.consumer("orders", group="g") as consumer:
                message = await asyncio.wait_for(anext(consumer), 30)

    assert message.id == receipt.id
    assert "a dispatch failed by a bug" in [line["event"] for line in logs]


async def test_a_rejection_whose_dead_letter_failed_by_a_bug_is_not_said_to_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with node() as url, ternmq.connect(url) as mq:
        await mq.send("orders", b"x")
        async with mq.consumer("orders", group="g") as consumer:
            message = await anext(consumer)
            monkeypatch.setattr(DeadLetterWriter, "move", failing_once(DeadLetterWriter.move))
            with capture_logs() as logs, pytest.raises(TernError, match="bug"):
                await message.reject("no")

    assert "dead letter failed by a bug" in [line["event"] for line in logs]


async def test_looking_ahead_that_fails_by_a_bug_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    async with node():
        look = BatchLookup(groups=None, consume=None, fetcher=None, feed=print)  # type: ignore[arg-type]
        with capture_logs() as logs:
            look._spawn(failing_once(asyncio.sleep)(0))
            await until(lambda: logs)

    assert logs[0]["event"] == "looking at messages failed by a bug"
