"""Clients that lie, ask too much or ask at a bad moment: refused, and nobody else is hurt."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

import ternmq
from ternmq.core.errors import BadRequest, OverLimit, TernError
from ternmq.testing import SimulatedDisk, node
from ternmq.wire.messages.groups import Start
from ternmq.wire.messages.pull import Ack, Acked, Done, Renew, Renewed
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack, unpack


@pytest.fixture
async def mq() -> AsyncIterator[Any]:
    async with node() as url, ternmq.connect(url, app="test") as client:
        yield client


async def a_message(consumer: Any) -> Any:
    return await asyncio.wait_for(anext(aiter(consumer)), 10)


@pytest.mark.parametrize(
    ("lease", "first", "end"),
    [(-(1 << 24) + 1, 0, 10), (1, -1, 10), (2**63, 0, 1), (1, 5, 5), (1, 0, 2**63)],
)
async def test_an_ack_with_numbers_that_cannot_be_closes_only_its_own_connection(
    mq: Any, lease: int, first: int, end: int
) -> None:
    await mq.send("orders", b"x")
    async with mq.consumer("orders", group="g") as consumer:
        await a_message(consumer)
        subscription = next(iter(consumer._subscriptions))
        ack = Ack(subscription=subscription._number, done=[Done(lease=lease, first=first, end=end)])

        with pytest.raises(TernError):
            await subscription._connection.call(Command.ACK, pack(ack))

        assert (await mq.send("orders", b"y")).sequence == 1


async def test_an_ack_for_a_lease_that_never_was_settles_nothing(mq: Any) -> None:
    await mq.send("orders", b"x")
    async with mq.consumer("orders", group="g") as consumer:
        (await a_message(consumer)).retry(after=3600)
        await consumer.flush()
        subscription = next(iter(consumer._subscriptions))
        made_up = (10**11 << 24) | 1
        ack = Ack(subscription=subscription._number, done=[Done(lease=made_up, first=0, end=1)])
        answer = await subscription._connection.call(Command.ACK, pack(ack))

    assert unpack(answer, Acked).settled == 0
    [line] = await mq.admin.ledger()
    assert line.waiting_retry == 1


async def test_renewing_many_leases_is_bounded_and_quick(mq: Any) -> None:
    topics = [f"t{number}" for number in range(50)]
    async with mq.consumer(topics, group="g") as consumer:
        subscription = next(iter(consumer._subscriptions))
        call = subscription._connection.call
        many = Renew(subscription=subscription._number, leases=list(range(1, 100_001)))
        lost = unpack(await call(Command.RENEW, pack(many)), Renewed).lost
        assert len(lost) == 100_000

        too_many = Renew(subscription=subscription._number, leases=[1] * 100_001)
        with pytest.raises(OverLimit):
            await call(Command.RENEW, pack(too_many))


async def test_a_message_of_the_largest_size_can_be_rejected(mq: Any) -> None:
    body = np.random.default_rng(1).bytes(4 * 1024 * 1024 - 300)
    await mq.send("orders", body)
    async with mq.consumer("orders", group="g") as consumer:
        await (await a_message(consumer)).reject("x" * 4_000)
    [letter] = [m async for m in mq.read("%dead.g")]

    assert letter.body == body


async def test_groups_can_be_made_while_many_are_snapshotted() -> None:
    async with (
        node(checkpoint_interval_ms=100) as url,
        ternmq.connect(url, app="test") as mq,
    ):
        await mq.send("orders", b"x")

        async def make(worker: int) -> None:
            for number in range(60):
                await mq.admin.create_group("orders", f"g{worker}-{number}", Start())

        await asyncio.gather(*(make(worker) for worker in range(8)))

        assert len(await mq.admin.groups("orders")) == 480


async def test_what_could_not_be_decided_on_a_full_disk_did_not_happen() -> None:
    disk = SimulatedDisk()
    async with node(disk=disk) as url, ternmq.connect(url, app="test") as mq:
        await mq.send_many("orders", [b"x"] * 10)
        async with mq.consumer("orders", group="g") as consumer:
            for _ in range(10):
                (await a_message(consumer)).ack()
            await consumer.flush()
        disk.free_size = 0
        with pytest.raises(TernError):
            await mq.admin.delete_group("orders", "g")
        with pytest.raises(TernError):
            await mq.admin.reset_group("orders", "g", Start(at="earliest"))
        disk.free_size = 2**39

        [line] = await mq.admin.ledger("orders", "g")
        assert (line.acked, line.ready) == (10, 0)


async def test_one_letter_that_cannot_be_stored_keeps_no_neighbour() -> None:
    disk = SimulatedDisk()
    async with node(disk=disk) as url, ternmq.connect(url, app="test") as mq:
        await mq.send_many("orders", [b"x"] * 5)
        async with mq.consumer("orders", group="g") as consumer:
            messages = [await a_message(consumer) for _ in range(5)]
            disk.free_size = 0
            with pytest.raises(TernError):
                for message in messages:
                    message.reject("no space")
                await consumer.flush()
            disk.free_size = 2**39
        [line] = await mq.admin.ledger("orders", "g")

        assert line.in_flight == 0
        assert line.waiting_retry + line.ready + line.dead == 5


async def test_a_request_about_a_frame_full_of_topics_is_refused_with_words(mq: Any) -> None:
    """Also without security: the same name so often that answering it would stop the loop."""
    await mq.send("orders", b"x")
    for names in (["orders"] * 1_001, ["orders"] * 600_000):
        with pytest.raises(BadRequest, match="at most 1000 topics"):
            await mq.admin.broker_status(names)
    [status] = await mq.admin.broker_status(["orders"] * 1_000)

    assert [each.topic for each in status.topics] == ["orders"]
