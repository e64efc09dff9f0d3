"""R1, R9: order keys of transactions lie where their slots do, also while those move."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import ternmq
from ternmq.core.slots import SLOTS, slot_of
from tests.integration.broker_groups import Several, several
from tests.waiting import until

EVEN, ODD = (
    next(f"k{n}" for n in range(100) if slot_of("orders", f"k{n}") % 2 == rest) for rest in (0, 1)
)


@pytest.fixture
async def cluster() -> AsyncIterator[Several]:
    async with several("east", "west") as made:
        yield made


async def assigned(mq: ternmq.Client) -> None:
    """Even slots lie on east, odd ones on west."""
    mq.transaction_checker(lambda question: ternmq.Verdict.UNKNOWN)
    await mq.send("orders", b"first", order_key=EVEN)
    await mq.send("orders", b"first", order_key=ODD)


async def taken(mq: ternmq.Client, count: int) -> list[tuple[str, str | None, str]]:
    found = []
    async with (
        asyncio.timeout(20),
        mq.consumer("orders", group="g", start="earliest", ordered=True) as messages,
    ):
        async for message in messages:
            message.ack()
            found.append((message.body.decode(), message.order_key, message.broker_group))
            if len(found) == count:
                break
    return found


async def test_each_part_of_a_transaction_lies_with_its_key(cluster: Several) -> None:
    async with ternmq.connect(cluster.url, app="shop") as mq:
        await assigned(mq)
        async with mq.transaction() as tx:
            rows = [ternmq.Outgoing(body=b"%d" % n, order_key=(EVEN, ODD)[n % 2]) for n in range(6)]
            receipts = await tx.send_many("orders", rows)
            assert [receipt.broker_group for receipt in receipts] == ["east", "west"] * 3
        assert [receipt.sequence for receipt in tx.receipts] == [1, 1, 2, 2, 3, 3]
        found = await taken(mq, 8)

    assert {(key, group) for _, key, group in found} == {(EVEN, "east"), (ODD, "west")}
    for key, bodies in ((EVEN, ["first", "0", "2", "4"]), (ODD, ["first", "1", "3", "5"])):
        assert [body for body, own, _ in found if own == key] == bodies


async def test_all_parts_are_rolled_back_and_a_person_ends_all_of_them(cluster: Several) -> None:
    async with ternmq.connect(cluster.url, app="shop") as mq:
        await assigned(mq)
        async with mq.transaction() as tx:
            for key in (EVEN, ODD):
                await tx.send("orders", b"never", order_key=key)
            raise ternmq.Rollback
        opened = mq.transaction()
        for key in (EVEN, ODD):
            await opened.send("orders", b"late", order_key=key)
        assert (await mq.admin.halves()).total == 2
        ended = await mq.admin.end_half(opened.id, "commit")
        assert len(ended.placed) == 2
        assert (await mq.admin.halves()).total == 0
        assert sorted(body for body, *_ in await taken(mq, 4)) == ["first"] * 2 + ["late"] * 2


async def test_what_is_staged_before_a_move_comes_before_what_is_sent_after_it(
    cluster: Several,
) -> None:
    async with ternmq.connect(cluster.url, app="shop") as mq:
        await assigned(mq)
        tx = mq.transaction()
        await tx.send("orders", b"staged", order_key=EVEN)
        await mq.admin.move_slots("west", range(0, SLOTS, 2))
        await until(lambda: mq.slot_owner("orders", EVEN) == "west")
        receipt = await mq.send("orders", b"after", order_key=EVEN)
        assert receipt.broker_group == "west"
        await tx.send("orders", b"staged there", order_key=EVEN)
        getting = asyncio.create_task(taken(mq, 5))
        await asyncio.sleep(1.5)  # Time enough for "after" to be handed out, were it not held.
        await tx.commit()
        found = await getting
        assert [body for body, key, _ in found if key == EVEN] == [
            *("first", "staged", "after", "staged there"),
        ]

        async def nobody_behind() -> bool:
            return not (await mq.admin.placement()).behind

        await until(nobody_behind)
