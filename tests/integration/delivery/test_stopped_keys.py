"""Order keys that stand still, and a look-ahead that a failing key has filled."""

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import ternmq
from ternmq.broker.groups import key_order
from ternmq.core.errors import BadRequest, FilterConflict, TernError
from ternmq.testing import SimulatedDisk, node
from tests.integration.delivery.test_delivery import ledger_shows, take
from tests.waiting import until


@pytest.fixture
async def mq() -> AsyncIterator[Any]:
    async with node() as url, ternmq.connect(url, app="test") as client:
        yield client


async def fill(mq: Any, count: int = 3) -> None:
    for number in range(count):
        for key in ("a", "b"):
            await mq.send("t", f"{key}{number}".encode(), order_key=key)


async def halted(mq: Any) -> Any:
    """A consumer of a group that stops at failures, with key a standing still at a0."""
    await fill(mq)
    await mq.admin.create_group("t", "g", ternmq.Start())
    await mq.admin.set_group("t", "g", on_failure="stop")
    consumer = await mq.consumer("t", group="g", ordered=True).start()
    for message in await take(consumer, 2):
        if message.body == b"a0":
            await message.retry(error=ValueError("no account"))
        else:
            await message.ack()
    for body in (b"b1", b"b2"):
        [message] = await take(consumer, 1)
        assert message.body == body, "other keys go on"
        await message.ack()
    return consumer


async def test_a_key_that_fails_stands_still_and_says_why(mq: Any) -> None:
    """J16: stops, by choice; what waits behind it is never handed out meanwhile."""
    consumer = await halted(mq)

    keys = await mq.admin.group_keys("t", "g")

    [stopped] = keys.stopped
    assert (stopped.key, stopped.sequence, stopped.attempt, stopped.held_back) == ("a", 0, 2, 2)
    assert stopped.error == "ValueError: no account"
    [line] = await mq.admin.ledger("t", "g")
    assert (line.waiting_retry, line.ready, line.acked) == (1, 2, 3)
    await consumer.close()


async def test_a_key_that_is_resumed_goes_on_in_order(mq: Any) -> None:
    consumer = await halted(mq)

    assert await mq.admin.resume_key("t", "g", "other") == 0
    assert await mq.admin.resume_key("t", "g", "a") == 1

    got = []
    for _ in range(3):
        [message] = await take(consumer, 1)
        got.append((message.body, message.attempt))
        await message.ack()
    assert got == [(b"a0", 2), (b"a1", 1), (b"a2", 1)]
    await consumer.close()


async def test_a_message_that_is_skipped_is_a_dead_letter_and_its_key_goes_on(mq: Any) -> None:
    consumer = await halted(mq)

    assert await mq.admin.resume_key("t", "g", skip=True) == 1

    assert [m.body for m in await take(consumer, 1)] == [b"a1"]
    await ledger_shows(mq, "dead", 1)
    [letter] = [m async for m in mq.read("%dead.g")]
    assert letter.body == b"a0"
    assert letter.properties["%reason"] == "skipped by an operator"
    assert letter.properties["%error_text"] == "no account"
    await consumer.close()


@pytest.mark.parametrize("how", ["rejected", "failed too often", "expired"])
async def test_a_key_goes_on_behind_a_message_that_died(mq: Any, how: str) -> None:
    """J16, R13: dead letters by choice; the key is free as soon as the copy is safe."""
    await mq.send("t", b"a0", order_key="a", ttl=0.001 if how == "expired" else None)
    await mq.send("t", b"a1", order_key="a")
    async with mq.consumer("t", group="g", ordered=True) as consumer:
        await mq.admin.set_group("t", "g", ordered_attempts_max=1)
        if how != "expired":
            [first] = await take(consumer, 1)
            await (first.reject() if how == "rejected" else first.retry())
        [second] = await take(consumer, 1)

    assert second.body == b"a1"
    [line] = await mq.admin.ledger("t", "g")
    assert line.dead + line.expired == 1


async def test_a_key_stands_still_across_a_power_cut(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    running = node(data_dir=tmp_path, disk=disk, session_grace_ms=10)
    async with ternmq.connect(await running.__aenter__(), app="test") as mq:
        consumer = await halted(mq)
        await consumer.close()
        await mq.admin.set_group("t", "g", retry="default")  # Safe: so is all before.
    disk.crash(1)
    with suppress(TernError, ExceptionGroup):
        await running.__aexit__(None, None, None)

    async with node(data_dir=tmp_path, disk=disk) as url, ternmq.connect(url, app="test") as mq:
        [stopped] = (await mq.admin.group_keys("t", "g")).stopped
        assert (stopped.key, stopped.error) == ("a", "ValueError: no account")
        async with mq.consumer("t", group="g", ordered=True) as consumer:
            await mq.admin.resume_key("t", "g", "a")
            assert [m.body for m in await take(consumer, 1)] == [b"a0"]


async def test_a_failing_key_that_fills_the_look_ahead_is_named(
    mq: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R6: bounded, with an alarm."""
    monkeypatch.setattr(key_order, "LOOK_AHEAD", 5)
    await mq.send_many("t", [ternmq.Outgoing(body=b"%d" % n, order_key="a") for n in range(9)])
    await mq.send("t", b"x", order_key="b")
    async with mq.consumer("t", group="g", ordered=True) as consumer:
        [head] = await take(consumer, 1)
        assert (await mq.admin.group_keys("t", "g")).full_since_ms == 0, "it is being worked on"
        await head.retry(after=60)

        async def full() -> bool:
            return bool((await mq.admin.group_keys("t", "g")).full_since_ms)

        await until(full)
        keys = await mq.admin.group_keys("t", "g")
        assert (keys.full_key, keys.full_rows) == ("a", 8)


async def test_a_fence_grows_with_every_hand_out_of_a_key(mq: Any) -> None:
    await mq.send_many("t", [ternmq.Outgoing(body=b"x", order_key="a") for _ in range(3)])
    fences = []
    async with mq.consumer("t", group="g", ordered=True) as consumer:
        for number in range(4):
            [message] = await take(consumer, 1)
            fences.append(message.fence)
            await (message.retry(after=0) if number == 0 else message.ack())

    assert fences == sorted(set(fences))
    assert fences[0].epoch > 0
    [read] = [m async for m in mq.read("t", end=1)]
    assert read.fence == (0, 0)


async def test_what_a_group_does_on_failure_is_checked(mq: Any) -> None:
    await fill(mq, 1)
    await mq.admin.create_group("t", "g", ternmq.Start())
    with pytest.raises(BadRequest, match="'retry' or 'stop'"):
        await mq.admin.set_group("t", "g", on_failure="explode")
    await mq.admin.set_group("t", "g", priority=True)
    with pytest.raises(FilterConflict, match="priority"):
        await mq.consumer("t", group="g", ordered=True).start()
    await mq.admin.set_group("t", "g", priority=False)
    async with mq.consumer("t", group="g", ordered=True):
        with pytest.raises(BadRequest, match="ordered"):
            await mq.admin.set_group("t", "g", priority=True)
