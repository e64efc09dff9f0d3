"""`delivery_timeout` counts from the call of `send`, whatever waits before the message, and who is
not answered is told the ids of what may be stored."""

import asyncio
from collections.abc import Sized
from functools import partial
from typing import Any

import pytest

import ternmq
from ternmq.batch.view import BatchView
from ternmq.client.producing.accumulator import OpenBatch
from ternmq.client.producing.producer import PARTIAL_MAX
from ternmq.client.producing.producer_batch import SendWindow
from ternmq.core.errors import SendUnknown, TernError, Unavailable
from ternmq.wire.numbers import Command
from tests.unit.client.fake_broker import FakeBroker
from tests.waiting import until

HOUR = 3600.0


def _has(things: Sized, count: int) -> bool:
    return len(things) == count


def _ids(broker: FakeBroker) -> list[str]:
    views = [BatchView(batch) for batch in broker.published]
    return [view.message_id(row) for view in views for row in range(view.count)]


def _bodies(broker: FakeBroker, topic: str = "orders") -> list[bytes]:
    views = [BatchView(batch) for batch in broker.batches.get(topic, [])]
    return [bytes(body) for view in views for body in view.bodies()]


async def _silent(broker: FakeBroker, mq: ternmq.Client, **options: Any) -> None:
    """One-way messages are under way, as many as may be, for hours."""
    broker.behave(Command.PUBLISH, lambda peer, frame: True)
    for at in range(PARTIAL_MAX):
        mq.send_nowait("orders", b"under way %d" % at, **options)
        if options and at:
            return  # Of those with order keys, one at a time.
        await until(partial(_has, broker.published, at + 1))


async def test_what_waits_behind_a_batch_with_order_keys_ends_at_its_own_deadline_the_rest_in_order(
    broker: FakeBroker,
) -> None:
    async with ternmq.connect(broker.url, delivery_timeout=0.3, resend_after=HOUR) as mq:
        await _silent(broker, mq, order_key="k")
        await asyncio.sleep(0.05)  # Older than an open batch may get: what follows is another one.
        with pytest.raises(Unavailable, match="are not stored: broker group 'main'"):
            await mq.send("orders", b"never sent", order_key="k")

        assert len(broker.published) == 1
        broker.behaviours.clear()
        mq.send_nowait("orders", b"last", order_key="k")
        broker.cut_all()
        await mq.flush()
        assert mq.stats().failed == 1

    assert _bodies(broker) == [b"under way 0", b"under way 1", b"last"]


async def test_what_waits_behind_other_batches_of_its_topic_ends_at_its_own_deadline(
    broker: FakeBroker,
) -> None:
    async with ternmq.connect(broker.url, delivery_timeout=0.3, resend_after=HOUR) as mq:
        await _silent(broker, mq)
        with pytest.raises(Unavailable, match="they are not stored"):
            await mq.send("orders", b"never sent")

        assert len(broker.published) == PARTIAL_MAX
        broker.behaviours.clear()
        broker.cut_all()
        await mq.flush()

    assert _bodies(broker) == [b"under way 0", b"under way 1"]


async def test_the_time_in_which_a_send_waits_for_room_counts(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    since: list[float] = []
    loop = asyncio.get_running_loop()
    async with ternmq.connect(broker.url, buffer_messages_max=1) as mq:
        window = mq.sender().window

        def noting(open_batch: OpenBatch) -> SendWindow:
            since.append(open_batch.opened_at)
            return window(open_batch)

        broker.behave(Command.PUBLISH, lambda peer, frame: True)
        mq.send_nowait("orders", b"fills the buffer")
        await until(lambda: broker.published)
        called = loop.time()
        second = asyncio.create_task(mq.send("orders", b"waits for room"))
        await asyncio.sleep(0.05)
        monkeypatch.setattr(mq.sender(), "window", noting)
        given = loop.time()
        broker.behaviours.clear()
        broker.cut_all()
        await second

    assert called <= since[0] < given


async def test_who_is_not_answered_is_told_the_id_of_his_message_and_how_to_look_for_it(
    broker: FakeBroker,
) -> None:
    broker.behave(Command.PUBLISH, lambda peer, frame: True)
    async with ternmq.connect(broker.url, delivery_timeout=0.2) as mq:
        errors = await asyncio.gather(
            *(mq.send("orders", b"x", key=f"k{at}") for at in range(3)), return_exceptions=True
        )
        ids = _ids(broker)[:3]

    assert all(isinstance(error, SendUnknown) for error in errors)
    assert [error.ids for error in errors] == [[one] for one in ids]  # type: ignore[union-attr]
    assert errors[0].details == {"ids": ids[:1]}  # type: ignore[union-attr]
    assert "mq.find(id=…)" in str(errors[0])


async def test_a_list_that_is_not_answered_raises_all_its_ids(broker: FakeBroker) -> None:
    broker.behave(Command.PUBLISH, lambda peer, frame: True)
    rows = [ternmq.Outgoing(body=b"x", order_key=f"o{at % 2}") for at in range(4)]
    async with ternmq.connect(broker.url, delivery_timeout=0.2, batch_rows_max=400) as mq:
        for bodies in ([b"x"] * 3, [b"x"] * 1000, rows):
            broker.published.clear()
            with pytest.raises(SendUnknown) as caught:
                await mq.send_many("orders", bodies)
            assert sorted(set(_ids(broker))) == sorted(caught.value.ids)
            assert len(caught.value.ids) == len(bodies)


async def test_a_one_way_message_that_is_not_answered_is_told_with_its_id(
    broker: FakeBroker,
) -> None:
    told: list[TernError] = []
    broker.behave(Command.PUBLISH, lambda peer, frame: True)
    async with ternmq.connect(
        broker.url,
        resend_times=0,
        resend_after=0.1,
        on_error=lambda topic, error: told.append(error),
    ) as mq:
        mq.send_nowait("orders", b"x")
        await mq.flush()

    assert [error.details["ids"] for error in told] == [_ids(broker)[:1]]


async def test_send_once_that_is_not_answered_tells_its_ids(broker: FakeBroker) -> None:
    broker.behave(Command.PUBLISH_ONCE, lambda peer, frame: True)
    row = ternmq.Outgoing(body=b"x", explicit_id=b"\0" * 15 + b"\1")
    async with ternmq.connect(broker.url, delivery_timeout=0.2) as mq:
        with pytest.raises(SendUnknown) as caught:
            await mq.send_once("orders", [row])

    assert caught.value.ids == ["0" * 25 + "1"]
