"""R1, Q1: rows with order keys go where their slots lie, in the order of the calls, also while
slots move."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import ternmq
from ternmq.batch.view import BatchView
from ternmq.core.errors import Moved, ReadOnly, Unavailable
from ternmq.core.slots import SLOTS, slot_of
from ternmq.rpc.server import Peer
from ternmq.wire.frame import Frame
from ternmq.wire.messages.order_keys import Placement
from ternmq.wire.messages.servers import Route, Routes
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack
from tests.unit.client.fake_broker import FakeBroker, fake_broker
from tests.waiting import until

KEY = "k"
SLOT = slot_of("orders", KEY)


class Pair:
    """Two brokers, a and b, and a placement that tests change."""

    def __init__(self, a: FakeBroker, b: FakeBroker) -> None:
        self.a, self.b = a, b
        self.placement = Placement(version=1, groups=["a", "b"], owners=[0] * SLOTS)
        self._version = 1
        a.behave(Command.ROUTES, self._routes)

    def _routes(self, peer: Peer, frame: Frame) -> bool:
        servers = [
            Route(broker_group="a", address=self.a.address),
            Route(broker_group="b", address=self.b.address),
        ]
        routes = Routes(version=self._version, servers=servers, placement=self.placement)
        peer.answer(frame.command, frame.correlation, pack(routes))
        return True

    def place(
        self,
        owner: int,
        *,
        closing: dict[int, int] | None = None,
        behind: dict[int, int] | None = None,
    ) -> None:
        self._version += 1
        owners = [0] * SLOTS
        owners[SLOT] = owner
        self.placement = Placement(
            version=self.placement.version + 1,
            groups=["a", "b"],
            owners=owners,
            closing=closing or {},
            behind=behind or {},
        )


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with fake_broker() as a, fake_broker() as b:
        yield Pair(a, b)


def bodies(broker: FakeBroker) -> list[bytes]:
    batches = broker.batches.get("orders", [])
    return [bytes(body) for batch in batches for body in BatchView(batch).bodies()]


async def test_a_key_goes_to_the_owner_of_its_slot_and_others_to_theirs(pair: Pair) -> None:
    pair.place(1)
    other = next(f"o{n}" for n in range(100) if slot_of("orders", f"o{n}") != SLOT)
    async with ternmq.connect(pair.a.url) as mq:
        for n in range(20):
            await mq.send("orders", b"%d" % n, order_key=KEY)
            await mq.send("orders", b"o%d" % n, order_key=other)

    assert bodies(pair.b) == [b"%d" % n for n in range(20)]
    assert bodies(pair.a) == [b"o%d" % n for n in range(20)]


async def test_a_list_with_order_keys_is_split_by_slots_and_its_receipt_is_in_order(
    pair: Pair,
) -> None:
    pair.place(1)
    rows = [
        ternmq.Outgoing(body=b"%d" % n, order_key=f"o{n % 7}" if n % 2 else KEY) for n in range(500)
    ]
    async with ternmq.connect(pair.a.url) as mq:
        receipt = await mq.send_many("orders", rows)

    assert not receipt.failures
    assert bodies(pair.b) == [b"%d" % n for n in range(0, 500, 2)]
    assert receipt[4].sequence == 2
    assert len({each.id for each in receipt}) == 500


async def test_one_batch_of_a_topic_is_under_way_at_a_time(pair: Pair) -> None:
    """A repeat or a refusal of the first must not let the second overtake it."""
    pair.a.behave(Command.PUBLISH, lambda peer, frame: True)
    async with ternmq.connect(pair.a.url, request_timeout=0.2) as mq:
        first = asyncio.create_task(mq.send("orders", b"1", order_key=KEY))
        await until(lambda: pair.a.published)
        second = asyncio.create_task(mq.send("orders", b"2", order_key=KEY))
        await until(lambda: len(pair.a.published) > 2)
        assert len(set(pair.a.published)) == 1
        pair.a.behaviours.pop(Command.PUBLISH)
        await asyncio.gather(first, second)

    assert bodies(pair.a) == [b"1", b"2"]


async def test_what_is_refused_as_moved_goes_to_the_new_owner_before_what_came_later(
    pair: Pair,
) -> None:
    """The producer has an old table; later rows of the key wait for the first."""
    pair.a.refuse(Command.PUBLISH, Moved("not here", version=9))
    async with ternmq.connect(pair.a.url) as mq:
        first = asyncio.create_task(mq.send("orders", b"1", order_key=KEY))
        await until(lambda: pair.a.published)
        rest = [
            asyncio.create_task(mq.send("orders", b"%d" % n, order_key=KEY)) for n in range(2, 50)
        ]
        await asyncio.sleep(0)
        pair.place(1)
        await asyncio.gather(first, *rest)

    assert bodies(pair.b) == [b"%d" % n for n in range(1, 50)]
    assert not bodies(pair.a)


async def test_while_a_slot_closes_its_rows_wait_and_others_go(pair: Pair) -> None:
    pair.place(0, closing={SLOT: 1})
    async with ternmq.connect(pair.a.url) as mq:
        waiting = [
            asyncio.create_task(mq.send("orders", b"%d" % n, order_key=KEY)) for n in range(10)
        ]
        await mq.send("orders", b"other", order_key="other")
        assert bodies(pair.a) == [b"other"]
        pair.place(1, behind={SLOT: 0})
        await asyncio.gather(*waiting)

    assert bodies(pair.b) == [b"%d" % n for n in range(10)]


async def test_rows_under_way_to_the_old_owner_hold_back_later_ones(pair: Pair) -> None:
    """The new table is known, but nobody knows yet what became of the first row."""
    pair.a.behave(Command.PUBLISH, lambda peer, frame: True)
    async with ternmq.connect(pair.a.url, request_timeout=0.2) as mq:
        first = asyncio.create_task(mq.send("orders", b"1", order_key=KEY))
        await until(lambda: pair.a.published)
        pair.place(1)
        second = asyncio.create_task(mq.send("orders", b"2", order_key=KEY))
        await until(lambda: len(pair.a.published) > 3)
        assert not pair.b.published
        pair.a.behaviours.pop(Command.PUBLISH)
        await asyncio.gather(first, second)

    assert (bodies(pair.a), bodies(pair.b)) == ([b"1"], [b"2"])


async def test_a_slot_that_stays_closed_is_told_in_time_and_nothing_is_stored(pair: Pair) -> None:
    pair.place(0, closing={SLOT: 1})
    async with ternmq.connect(pair.a.url, delivery_timeout=0.3) as mq:
        with pytest.raises(Unavailable, match="slots"):
            await mq.send("orders", b"1", order_key=KEY)

    assert not pair.a.published
    assert not pair.b.published


async def test_the_first_order_key_of_a_cluster_makes_slots_have_owners(broker: FakeBroker) -> None:
    async with ternmq.connect(broker.url) as mq:
        await mq.send("orders", b"1", order_key=KEY)

    assert broker.placement is not None
    assert bodies(broker) == [b"1"]


async def test_a_key_waits_for_an_owner_without_its_replicas(pair: Pair) -> None:
    """As for one that is away: nobody else may have it, and it heals by itself."""
    pair.a.refuse(Command.PUBLISH, ReadOnly("no replica"))
    async with ternmq.connect(pair.a.url) as mq:
        first = asyncio.create_task(mq.send("orders", b"1", order_key=KEY))
        await until(lambda: len(pair.a.published) > 3)
        second = asyncio.create_task(mq.send("orders", b"2", order_key=KEY))
        pair.a.behaviours.pop(Command.PUBLISH)
        await asyncio.gather(first, second)

    assert bodies(pair.a) == [b"1", b"2"]
    assert bodies(pair.b) == []


async def test_in_the_end_the_caller_is_told_what_the_owner_said(pair: Pair) -> None:
    pair.a.refuse(Command.PUBLISH, ReadOnly("no replica"))
    async with ternmq.connect(pair.a.url, delivery_timeout=1) as mq:
        with pytest.raises(ReadOnly, match="no replica"):
            await mq.send("orders", b"1", order_key=KEY)
