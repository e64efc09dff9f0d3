"""Confirm on consumption, as a producer sees it: the real broker in this process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import ternmq
from ternmq.broker.publishing import confirm
from ternmq.core.errors import (
    BadRequest,
    GroupNotFound,
    NotConfirmed,
    OverLimit,
    TernError,
    TopicNotFound,
)
from ternmq.testing import SimulatedDisk, node
from ternmq.wire.messages.groups import Start
from tests.integration.delivery.test_delivery import take


@pytest.fixture
async def mq() -> AsyncIterator[Any]:
    async with node() as url, ternmq.connect(url, app="test") as client:
        yield client


async def make_group(mq: Any, topic: str = "orders", group: str = "g") -> None:
    await mq.admin.create_topic(topic)
    await mq.admin.create_group(topic, group, Start())


async def test_a_send_returns_when_the_group_has_acked(mq: Any) -> None:
    """D13: success only after the consumer acked."""
    await make_group(mq)
    sending = asyncio.create_task(mq.send("orders", b"x", confirm_group="g", key="k"))
    async with mq.consumer("orders", group="g") as consumer:
        message = await anext(consumer)
        assert not sending.done()
        message.ack()
        async with asyncio.timeout(10):
            receipt = await sending

    assert (receipt.sequence, receipt.id) == (message.sequence, message.id)
    assert message.key == "k"


async def test_a_message_that_was_acked_before_anybody_asked_is_confirmed_at_once(mq: Any) -> None:
    await make_group(mq)
    receipt = await mq.send("orders", b"x")
    async with mq.consumer("orders", group="g") as consumer:
        await (await anext(consumer)).ack()

    await mq.confirm(receipt, "g", timeout=0)


async def test_a_dead_letter_is_an_error_that_says_so_and_has_the_receipt(mq: Any) -> None:
    await make_group(mq)
    sending = asyncio.create_task(mq.send("orders", b"x", confirm_group="g"))
    async with mq.consumer("orders", group="g") as consumer:
        message = await anext(consumer)
        message.reject("broken")
        async with asyncio.timeout(10):
            with pytest.raises(
                NotConfirmed, match="stored, but group 'g' did not ack: 1 dead"
            ) as e:
                await sending

    assert e.value.state == "dead"
    assert e.value.receipt.id == message.id
    with pytest.raises(NotConfirmed, match="1 dead"):
        await mq.confirm(e.value.receipt, "g")


async def test_a_filtered_message_is_never_acked(mq: Any) -> None:
    await make_group(mq)
    async with mq.consumer("orders", group="g", tag="vip"):
        async with asyncio.timeout(10):
            with pytest.raises(NotConfirmed) as e:
                await mq.send("orders", b"x", tag="other", confirm_group="g")

    assert e.value.state == "filtered"


async def test_when_time_is_up_the_message_is_stored_and_one_can_wait_on(mq: Any) -> None:
    await make_group(mq)
    with pytest.raises(
        NotConfirmed, match=r"stored, but group 'g' did not ack within 0\.05 s"
    ) as e:
        await mq.send("orders", b"x", confirm_group="g", timeout=0.05)
    assert e.value.state == "open"

    waiting = asyncio.create_task(mq.confirm(e.value.receipt, "g", timeout=10))
    async with mq.consumer("orders", group="g") as consumer:
        (await anext(consumer)).ack()
        await waiting


async def test_an_unknown_group_is_refused_before_anything_is_sent(mq: Any) -> None:
    with pytest.raises(TopicNotFound):
        await mq.send("orders", b"x", confirm_group="g")
    await make_group(mq)
    with pytest.raises(GroupNotFound, match="nobody"):
        await mq.send("orders", b"x", confirm_group="nobody")
    with pytest.raises(GroupNotFound):
        await mq.send_many("orders", [b"x"], confirm_group="nobody")

    assert (await mq.admin.seek("orders", Start())).end == 0


async def test_a_list_is_confirmed_as_a_whole(mq: Any) -> None:
    await make_group(mq)
    sending = asyncio.create_task(mq.send_many("orders", [b"x"] * 10, confirm_group="g"))
    async with mq.consumer("orders", group="g") as consumer:
        messages = [await anext(consumer) for _ in range(10)]
        for message in messages[:-1]:
            await message.ack()
        assert not sending.done()
        messages[-1].ack()
        async with asyncio.timeout(10):
            receipts = await sending

    assert [receipt.sequence for receipt in receipts] == list(range(10))


async def test_what_is_missing_of_a_list_is_named(mq: Any) -> None:
    await make_group(mq)
    sending = asyncio.create_task(
        mq.send_many("orders", [b"x"] * 4, confirm_group="g", timeout=0.3)
    )
    async with mq.consumer("orders", group="g") as consumer:
        messages = [await anext(consumer) for _ in range(4)]
        messages[0].ack()
        await messages[1].reject("no")
        with pytest.raises(NotConfirmed, match="1 dead, 2 open") as e:
            await sending

    assert e.value.state == "several"
    assert sorted(e.value.details["missing"]) == [(1, 2, "dead"), (2, 4, "open")]
    assert len(e.value.receipt) == 4


async def test_a_group_that_is_deleted_meanwhile_is_said(mq: Any) -> None:
    await make_group(mq)
    receipt = await mq.send("orders", b"x")
    waiting = asyncio.create_task(mq.confirm(receipt, "g", timeout=30))
    await asyncio.sleep(0.05)
    await mq.admin.delete_group("orders", "g")
    async with asyncio.timeout(10):
        with pytest.raises(NotConfirmed, match=r"deleted|has no group"):
            await waiting


async def test_a_skipped_message_is_not_reported_as_acked(mq: Any) -> None:
    await make_group(mq)
    receipts = [await mq.send("orders", b"x") for _ in range(3)]
    async with mq.consumer("orders", group="g") as consumer:
        first, dead = await take(consumer, 2)
        await first.ack()
        await dead.reject("no")
    await mq.admin.reset_group("orders", "g", Start(at="latest"))

    await mq.confirm(receipts[0], "g")
    for receipt, state in ((receipts[1], "dead"), (receipts[2], "skipped")):
        with pytest.raises(NotConfirmed) as e:
            await mq.confirm(receipt, "g")
        assert e.value.state == state


async def test_what_a_reset_skipped_is_known_after_a_restart(tmp_path: Path) -> None:
    async with node(data_dir=tmp_path) as url, ternmq.connect(url, app="test") as mq:
        await make_group(mq)
        receipt = await mq.send("orders", b"x")
        await mq.admin.reset_group("orders", "g", Start(at="latest"))
    async with node(data_dir=tmp_path) as url, ternmq.connect(url, app="test") as mq:
        with pytest.raises(NotConfirmed) as e:
            await mq.confirm(receipt, "g")
        assert e.value.state == "skipped"


async def test_what_makes_no_sense_is_refused(mq: Any) -> None:
    await make_group(mq)
    with pytest.raises(BadRequest, match="timeout= is for confirm_group="):
        await mq.send("orders", b"x", timeout=3)
    with pytest.raises(BadRequest, match="waits for nobody"):
        mq.send_nowait("orders", b"x", confirm_group="g")
    with pytest.raises(BadRequest, match="a delayed message is not consumed yet"):
        await mq.send_many("orders", [b"x"], confirm_group="g", delay=5)
    with pytest.raises(BadRequest, match="timeout is -1"):
        await mq.send("orders", b"x", confirm_group="g", timeout=-1)


async def test_too_many_waiting_confirmations_are_told_so(
    mq: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounded; the client asks again until its time is up."""
    monkeypatch.setattr(confirm, "ASKED_MAX", 1)
    await make_group(mq)
    receipts = await mq.send_many("orders", [b"x"] * 2)
    waiting = [asyncio.create_task(mq.confirm(r, "g", timeout=20)) for r in receipts]
    await asyncio.sleep(0.05)
    assert OverLimit.retryable
    async with mq.consumer("orders", group="g") as consumer:
        for _ in receipts:
            (await anext(consumer)).ack()
        async with asyncio.timeout(10):
            await asyncio.gather(*waiting)


@pytest.mark.parametrize("seed", range(4))
async def test_what_was_confirmed_stays_acked_when_the_power_fails(
    tmp_path: Path, seed: int
) -> None:
    """The ack itself is progress; the confirmation is a decision, on disk before it is told."""
    disk = SimulatedDisk()
    running = node(data_dir=tmp_path, disk=disk)
    url = await running.__aenter__()
    mq = await ternmq.connect(url, app="test", delivery_timeout=1)
    await make_group(mq)
    consumer = await mq.consumer("orders", group="g").start()
    sending = asyncio.create_task(mq.send("orders", b"x", confirm_group="g"))
    (await anext(consumer)).ack()
    receipt = await sending
    disk.crash(seed)
    with suppress(TernError, ExceptionGroup):
        await running.__aexit__(None, None, None)
    with suppress(TernError):
        await mq.close()

    async with node(data_dir=tmp_path, disk=disk) as url, ternmq.connect(url, app="test") as mq:
        [line] = await mq.admin.ledger("orders", "g")
        assert line.acked == 1
        await mq.confirm(receipt, "g", timeout=5)
