"""Messages of many calls in few batches."""

import asyncio
from collections.abc import Sequence

import pytest

from ternmq.batch.encoder import Outgoing
from ternmq.client.producing.send_once import OnceReceipt
from ternmq.core.errors import BadRequest, Unavailable
from ternmq.gateway.sessions.shared_sends import TOGETHER_MAX, SharedSends
from tests.waiting import until


class OnceStore:
    """Stores rows when it is let; refuses bodies that say so."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.stored: list[bytes] = []
        self.open = asyncio.Event()
        self.open.set()

    async def send_once(
        self, topic: str, rows: Sequence[Outgoing], broker_group: str | None = None
    ) -> list[OnceReceipt]:
        self.batches.append([row.body for row in rows])
        await self.open.wait()
        if any(row.body == b"bad" for row in rows):
            raise BadRequest("this one is bad")
        receipts = []
        for row in rows:
            self.stored.append(row.body)
            receipts.append(
                OnceReceipt(
                    id="",
                    topic=topic,
                    broker_group=broker_group or "",
                    sequence=len(self.stored),
                    stored_at_ms=0,
                    duplicate=False,
                )
            )
        return receipts

    def broker_groups(self) -> list[str]:
        return ["b"]

    def taking_groups(self) -> list[str]:
        return ["b"]

    def slot_owner(self, topic: str, order_key: str) -> str | None:
        return "b"


def row(body: bytes, order_key: str | None = None) -> Outgoing:
    return Outgoing(body=body, explicit_id=body, order_key=order_key)


async def test_calls_of_one_turn_share_a_batch_and_each_has_its_own_receipt() -> None:
    store = OnceStore()
    sends = SharedSends(store)
    bodies = [b"%d" % at for at in range(50)]

    receipts = await asyncio.gather(*(sends.send("t", "b", row(body)) for body in bodies))

    assert store.batches == [bodies]
    assert [receipt.sequence for receipt in receipts] == list(range(1, 51))


async def test_what_comes_while_a_batch_is_under_way_waits_for_the_next_in_order() -> None:
    store = OnceStore()
    sends = SharedSends(store)
    store.open.clear()
    tasks = []
    for at in range(10):
        tasks.append(asyncio.create_task(sends.send("t", "b", row(b"%d" % at, "key"))))
        for _ in range(3):
            await asyncio.sleep(0)
    store.open.set()
    await asyncio.gather(*tasks)

    assert len(store.batches) == 2
    assert store.stored == [b"%d" % at for at in range(10)]


async def test_a_message_that_is_refused_hurts_no_other() -> None:
    store = OnceStore()
    sends = SharedSends(store)
    bodies = [b"a", b"b", b"bad", b"c"]

    outcomes = await asyncio.gather(
        *(sends.send("t", "b", row(body)) for body in bodies), return_exceptions=True
    )

    assert isinstance(outcomes[2], BadRequest)
    assert sorted(store.stored) == [b"a", b"b", b"c"]


async def test_nothing_overtakes_a_message_of_its_group_that_failed() -> None:
    store = OnceStore()
    sends = SharedSends(store)
    rows = [row(b"bad", "key"), row(b"after", "key"), row(b"other", "another")]

    outcomes = await asyncio.gather(
        *(sends.send("t", "b", one) for one in rows), return_exceptions=True
    )

    assert isinstance(outcomes[0], BadRequest)
    assert isinstance(outcomes[1], Unavailable)
    assert store.stored == [b"other"]


async def test_a_caller_that_goes_leaves_the_others_alone() -> None:
    store = OnceStore()
    sends = SharedSends(store)
    store.open.clear()
    goes = asyncio.create_task(sends.send("t", "b", row(b"goes")))
    stays = asyncio.create_task(sends.send("t", "b", row(b"stays")))
    await until(lambda: store.batches, "both are under way")
    goes.cancel()
    store.open.set()

    assert (await stays).sequence == 2
    with pytest.raises(asyncio.CancelledError):
        await goes


async def test_a_batch_is_bounded_by_rows_and_by_bytes() -> None:
    store = OnceStore()
    sends = SharedSends(store)
    small = [row(b"%d" % at) for at in range(TOGETHER_MAX + 5)]
    await asyncio.gather(*(sends.send("t", "b", one) for one in small))
    assert [len(batch) for batch in store.batches] == [TOGETHER_MAX, 5]
    store.batches.clear()

    large = [row(bytes((at,)) * 3_000_000) for at in range(3)]
    await asyncio.gather(*(sends.send("t", "b", one) for one in large))
    assert [len(batch) for batch in store.batches] == [1, 1, 1]
