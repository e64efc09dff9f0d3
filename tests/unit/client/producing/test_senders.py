"""Q1: several broker groups: refusals go to another one, unclear results stay where they are."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import ternmq
from ternmq.core.errors import DiskFull, OverLimit, ReadOnly, SendUnknown, Unavailable
from ternmq.rpc.server import Peer
from ternmq.wire.frame import Frame
from ternmq.wire.messages.servers import Route, Routes
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack
from tests.unit.client.fake_broker import FakeBroker, fake_broker
from tests.waiting import until


def announce(meta: FakeBroker, *addresses: str) -> None:
    """Routes to groups a, b, c …"""
    servers = [
        Route(broker_group=group, address=address)
        for group, address in zip("abc", addresses, strict=False)
    ]

    def tell(peer: Peer, frame: Frame) -> bool:
        peer.answer(frame.command, frame.correlation, pack(Routes(version=1, servers=servers)))
        return True

    meta.behave(Command.ROUTES, tell)


@pytest.fixture
async def pair() -> AsyncIterator[tuple[FakeBroker, FakeBroker]]:
    async with fake_broker() as first, fake_broker() as second:
        announce(first, first.address, second.address)
        yield first, second


@pytest.mark.parametrize(
    "refusal", [ReadOnly("no replica"), DiskFull("full"), OverLimit("busy", wait_ms=60_000)]
)
async def test_what_a_group_refuses_goes_to_another_under_a_new_number(
    pair: tuple[FakeBroker, FakeBroker], refusal: ternmq.TernError
) -> None:
    first, second = pair
    first.refuse(Command.PUBLISH, refusal)
    async with ternmq.connect(first.url) as mq:
        receipts = [await mq.send("orders", b"%d" % n) for n in range(10)]

    assert sum(map(len, second.batches.values())) == 10
    assert not first.batches
    assert len({receipt.id for receipt in receipts}) == 10


async def test_a_group_that_refuses_is_left_alone_for_a_while(
    pair: tuple[FakeBroker, FakeBroker],
) -> None:
    first, second = pair
    first.refuse(Command.PUBLISH, ReadOnly("no replica"))
    async with ternmq.connect(first.url) as mq:
        for n in range(20):
            await mq.send("orders", b"%d" % n)
        assert len(first.published) <= 2

        first.behaviours.pop(Command.PUBLISH)
        async for _ in until_stored(mq, first):
            pass

    assert second.batches["orders"]


async def until_stored(mq: ternmq.Client, broker: FakeBroker) -> AsyncIterator[None]:
    while "orders" not in broker.batches:
        await mq.send("orders", b"more")
        yield


async def test_a_group_that_cannot_be_reached_keeps_nobody_waiting(
    pair: tuple[FakeBroker, FakeBroker],
) -> None:
    first, second = pair
    announce(first, "127.0.0.1:1", second.address)
    async with ternmq.connect(first.url, delivery_timeout=5) as mq:
        for n in range(10):
            await mq.send("orders", b"%d" % n)

    assert len(second.batches["orders"]) == 10


async def test_when_all_groups_refuse_the_caller_is_told_after_three_tries(
    pair: tuple[FakeBroker, FakeBroker],
) -> None:
    for broker in pair:
        broker.refuse(Command.PUBLISH, ReadOnly("no replica"))
    async with ternmq.connect(pair[0].url) as mq:
        with pytest.raises(ReadOnly):
            await mq.send("orders", b"x")

    assert len(pair[0].published) + len(pair[1].published) == 3


async def test_what_a_dead_master_may_have_had_goes_to_another_group_when_its_successor_has_it_not(
    pair: tuple[FakeBroker, FakeBroker],
) -> None:
    """Q12: who leads in a later epoch looks first whether it has the batch; its refusal settles
    what became of every try before."""
    first, second = await _silent_then(pair, epoch=2)

    assert len(second.published) + len(first.published) > 2
    assert sum(map(len, first.batches.values())) + sum(map(len, second.batches.values())) == 1


async def _silent_then(
    pair: tuple[FakeBroker, FakeBroker], *, epoch: int
) -> tuple[FakeBroker, FakeBroker]:
    """Whoever gets the message says nothing; then there is another master, who takes nothing."""
    for broker in pair:
        broker.behave(Command.PUBLISH, lambda peer, frame: True)
    async with ternmq.connect(pair[0].url, delivery_timeout=5) as mq:
        sending = asyncio.create_task(mq.send("orders", b"x"))
        await until(lambda: pair[0].published or pair[1].published)
        silent, other = pair if pair[0].published else (pair[1], pair[0])
        other.behaviours.pop(Command.PUBLISH)
        silent.epoch = epoch
        silent.refuse(Command.PUBLISH, ReadOnly("no replica"))
        for peer in list(silent.listener.peers) if silent.listener else []:
            peer.abort()
        await sending
    return pair


async def test_a_refusal_of_the_same_epoch_says_nothing_about_the_tries_before(
    pair: tuple[FakeBroker, FakeBroker],
) -> None:
    """Bytes of a lost connection may be read after it."""
    with pytest.raises(ternmq.SendUnknown):
        await _silent_then(pair, epoch=1)

    assert not (pair[0].batches or pair[1].batches)


async def test_a_refused_batch_waits_for_a_group_that_has_not_refused_it(
    pair: tuple[FakeBroker, FakeBroker],
) -> None:
    first, second = pair
    first.refuse(Command.PUBLISH, ReadOnly("no replica"))
    second.refusal = Unavailable("not yet")
    async with ternmq.connect(first.url) as mq:
        sending = asyncio.create_task(mq.send("orders", b"x"))
        # It waits in either line, by where it went first: for the one that cannot be reached, or
        # again and again at the one that refuses.
        await until(lambda: first.published and len(second.hellos) > 1)
        second.refusal = None
        receipt = await sending

    assert receipt.sequence == 0
    assert len(second.batches["orders"]) == 1


async def test_the_error_names_the_group_that_takes_no_messages(broker: FakeBroker) -> None:
    """Q11."""
    broker.refuse(Command.PUBLISH, ReadOnly("no replica"))
    async with ternmq.connect(broker.url) as mq:
        with pytest.raises(ReadOnly, match="broker group 'main': no replica") as caught:
            await mq.send("orders", b"x")

    assert caught.value.details["broker_group"] == "main"


async def test_an_unclear_result_stays_with_its_group_and_its_number(
    pair: tuple[FakeBroker, FakeBroker],
) -> None:
    """Whether the silent group has it nobody knows: the same bytes again, and only there."""
    first, second = pair
    for broker in pair:
        broker.behave(Command.PUBLISH, lambda peer, frame: True)
    async with ternmq.connect(first.url, request_timeout=0.1, delivery_timeout=0.6) as mq:
        with pytest.raises(ternmq.SendUnknown):
            await mq.send("orders", b"x")

    silent = first.published or second.published
    assert len(silent) > 1
    assert len(set(silent)) == 1
    assert not (first.published and second.published)


async def test_who_allows_duplicates_is_served_by_another_group_with_the_same_id(
    pair: tuple[FakeBroker, FakeBroker],
) -> None:
    first, second = pair
    silent: list[bytes] = []

    def say_nothing(peer: Peer, frame: Frame) -> bool:
        silent.append(bytes(frame.payload))
        return len(silent) == 1

    for broker in pair:
        broker.behave(Command.PUBLISH, say_nothing)
    async with ternmq.connect(first.url, request_timeout=0.1, allow_duplicates=True) as mq:
        receipt = await mq.send("orders", b"x")

    assert receipt.sequence == 0
    assert len(first.published) == len(second.published) == 1
    assert first.published == second.published


async def test_a_silent_group_gets_no_new_messages(pair: tuple[FakeBroker, FakeBroker]) -> None:
    first, second = pair
    second.behave(Command.PUBLISH, lambda peer, frame: True)
    async with ternmq.connect(first.url, request_timeout=0.2, resend_after=0.2) as mq:
        mq.send_nowait("orders", b"somewhere")
        mq.send_nowait("other", b"elsewhere")
        await until(lambda: len(second.published) >= 2)  # Silent: the first one comes again.
        before = len(set(second.published))
        for n in range(20):
            await mq.send("orders", b"%d" % n)

        assert len(set(second.published)) == before
        second.behaviours.pop(Command.PUBLISH)
        await mq.flush()


# As often as the application wants.


def silent(peer: Peer, frame: Frame) -> bool:
    return True


async def test_a_refused_message_is_tried_as_often_as_was_chosen(
    pair: tuple[FakeBroker, FakeBroker],
) -> None:
    """R20: with one try nobody else is asked."""
    for broker in pair:
        broker.refuse(Command.PUBLISH, ReadOnly("no replica"))
    async with ternmq.connect(pair[0].url, tries_max=1) as mq:
        with pytest.raises(ReadOnly):
            await mq.send("orders", b"paid")
    assert sum(len(broker.published) for broker in pair) == 1

    async with ternmq.connect(pair[0].url, tries_max=2) as mq:
        with pytest.raises(ReadOnly):
            await mq.send("orders", b"paid")
    assert sum(len(broker.published) for broker in pair) == 3
    assert all(broker.published for broker in pair), "the second try is another group's"


async def test_tries_of_messages_that_are_waited_for_and_of_one_way_messages_are_apart(
    broker: FakeBroker,
) -> None:
    """R20: without an answer; long before the time is over."""
    broker.behave(Command.PUBLISH, silent)
    told: list[ternmq.TernError] = []
    async with ternmq.connect(
        broker.url,
        tries_max=2,
        tries_max_nowait=3,
        request_timeout=0.5,
        resend_after=0.02,
        resend_times=1000,
        on_error=lambda topic, error: told.append(error),
    ) as mq:
        with pytest.raises(SendUnknown, match="in 2 tries") as failure:
            await mq.send("orders", b"paid")
        assert (len(broker.published), len(failure.value.ids)) == (2, 1)

        mq.send_nowait("orders", b"log")
        await mq.flush()
        assert len(broker.published) == 5
        assert "in 3 tries" in told[0].message


async def test_three_tries_on_three_groups_then_an_error() -> None:
    """J9: different brokers, also where the first may have stored it."""
    async with fake_broker() as a, fake_broker() as b, fake_broker() as c:
        announce(a, a.address, b.address, c.address)
        for broker in (a, b, c):
            broker.behave(Command.PUBLISH, silent)
        options = {"tries_max": 3, "allow_duplicates": True, "request_timeout": 0.5}
        async with ternmq.connect(a.url, **options) as mq:  # type: ignore[arg-type]
            with pytest.raises(SendUnknown, match="in 3 tries"):
                await mq.send("orders", b"paid")
        assert [len(broker.published) for broker in (a, b, c)] == [1, 1, 1]


async def test_a_group_that_cannot_be_reached_uses_up_tries(broker: FakeBroker) -> None:
    """R20: certainly not stored, and said so."""
    announce(broker, "127.0.0.1:1")
    async with ternmq.connect(broker.url, tries_max=2) as mq:
        with pytest.raises(Unavailable):
            await mq.send("orders", b"paid")
        assert mq.stats().failed == 1


async def test_who_does_not_want_it_has_failing_groups_not_avoided(
    pair: tuple[FakeBroker, FakeBroker],
) -> None:
    """R20: avoiding is a choice; what is refused goes to another group all the same."""
    first, second = pair
    first.refuse(Command.PUBLISH, ReadOnly("no replica"))
    async with ternmq.connect(first.url, avoid_failing=False) as mq:
        for n in range(20):
            await mq.send("orders", b"%d" % n)
    assert len(first.published) == 10
    assert len(second.batches["orders"]) == 20


@pytest.mark.parametrize(
    "options", [{"tries_max": 0}, {"tries_max_nowait": 1.5}, {"avoid_failing": "no"}]
)
def test_impossible_tries_are_refused(options: dict[str, object]) -> None:
    """R20: before anything runs."""
    with pytest.raises(ternmq.BadConfig, match=next(iter(options))):
        ternmq.connect("tern://127.0.0.1", **options)  # type: ignore[arg-type]
