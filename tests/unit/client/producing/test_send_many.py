"""`send_many`: splitting, order, what is checked before, what failed after."""

import asyncio
from typing import Any

import pytest

import ternmq
from ternmq.batch.view import BatchView
from ternmq.client.producing import accumulator
from ternmq.core.errors import BadRequest, BufferFull, DiskFull, TooLarge
from ternmq.rpc.server import Peer
from ternmq.wire.frame import Frame
from ternmq.wire.numbers import Command
from tests.unit.client.fake_broker import FakeBroker
from tests.waiting import until


def stored_bodies(broker: FakeBroker, topic: str) -> list[bytes]:
    return [body for batch in broker.batches[topic] for body in BatchView(batch).bodies()]


async def test_a_long_list_is_split_and_stored_in_order(broker: FakeBroker) -> None:
    """R8: automatic splitting."""
    bodies = [b"%d" % at for at in range(10_000)]
    async with ternmq.connect(broker.url, batch_rows_max=1000) as mq:
        receipt = await mq.send_many("orders", bodies)

    assert len(broker.published) == 10
    assert stored_bodies(broker, "orders") == bodies
    assert len(receipt) == 10_000
    assert [receipt[at].sequence for at in (0, 999, 1000, 9999, -1)] == [0, 999, 1000, 9999, 9999]
    assert receipt.failures == []


async def test_large_bodies_are_split_by_size(broker: FakeBroker) -> None:
    bodies = [bytes(400_000), bytes(3_000_000), bytes(700_000), b"", bytes(400_000)]
    async with ternmq.connect(broker.url, compression="none") as mq:
        receipt = await mq.send_many("orders", bodies)

    assert [BatchView(batch).count for batch in broker.published] == [1, 1, 2, 1]
    assert stored_bodies(broker, "orders") == bodies
    assert [each.sequence for each in receipt] == [0, 1, 2, 3, 4]


async def test_a_row_that_fits_no_batch_is_named(broker: FakeBroker) -> None:
    """J8: over 4 MB after compression is refused with a clear error; the others are stored."""
    bodies = [b"a", bytes(5_000_000), b"b"]
    async with ternmq.connect(broker.url, compression="none") as mq:
        receipt = await mq.send_many("orders", bodies)

    assert [(rows, error.code) for rows, error in receipt.failures] == [(range(1, 2), "too_large")]
    assert stored_bodies(broker, "orders") == [b"a", b"b"]
    assert receipt[2].sequence == 1
    with pytest.raises(TooLarge, match="4 MiB"):
        receipt[1]


async def test_what_waits_is_stored_before_the_list(broker: FakeBroker, mq: ternmq.Client) -> None:
    mq.send_nowait("orders", b"first")
    await mq.send_many("orders", [b"second", b"third"])

    assert stored_bodies(broker, "orders") == [b"first", b"second", b"third"]


async def test_the_options_apply_to_all(broker: FakeBroker, mq: ternmq.Client) -> None:
    await mq.send_many("orders", [b"a", b"b"], tag="vip", key="k")

    view = BatchView(broker.published[0])
    assert [view.tag(row) for row in range(2)] == ["vip", "vip"]
    assert [view.key(row) for row in range(2)] == ["k", "k"]


async def test_messages_may_differ_in_everything(broker: FakeBroker, mq: ternmq.Client) -> None:
    outgoing = ternmq.Outgoing(body=b"a", key="k", priority=3)
    await mq.send_many("orders", [outgoing, b"bare", bytearray(b"array"), memoryview(b"view")])

    view = BatchView(broker.published[0])
    assert view.bodies() == [b"a", b"bare", b"array", b"view"]
    assert [view.key(row) for row in range(4)] == ["k", None, None, None]
    assert outgoing.born_at_ms == 0  # The caller's object is the caller's.


async def test_one_bad_message_and_nothing_is_sent(broker: FakeBroker, mq: ternmq.Client) -> None:
    bodies: list[object] = [b"good"] * 5000 + ["text"]
    with pytest.raises(BadRequest, match=r"message 5000: a body is bytes, not str"):
        await mq.send_many("orders", bodies)

    assert broker.published == []


async def test_parts_that_fail_are_listed(broker: FakeBroker) -> None:
    def refuse_second(peer: Peer, frame: Frame) -> bool:
        if BatchView(frame.payload).bodies()[0] == b"2":
            peer.fail(frame.command, frame.correlation, DiskFull("no space"))
            return True
        return False

    broker.behave(Command.PUBLISH, refuse_second)
    async with ternmq.connect(broker.url, batch_rows_max=2) as mq:
        receipt = await mq.send_many("orders", [b"%d" % at for at in range(6)])

    assert [(rows, error.code) for rows, error in receipt.failures] == [(range(2, 4), "disk_full")]
    assert [receipt[at].topic for at in (0, 1, 4, 5)] == ["orders"] * 4


async def test_an_error_is_raised_when_everything_failed(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    broker.refuse(Command.PUBLISH, ternmq.TopicNotFound("create it first"))
    with pytest.raises(ternmq.TopicNotFound, match="create it first"):
        await mq.send_many("orders", [b"a", b"b"])

    assert mq.stats().failed == 2


async def test_an_empty_list_is_an_empty_receipt(mq: ternmq.Client) -> None:
    receipt = await mq.send_many("orders", [])

    assert len(receipt) == 0


async def test_the_loop_goes_on_while_a_long_list_is_sent(mq: ternmq.Client) -> None:
    turns = 0
    done = False

    async def count() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await mq.send_many("orders", [b"x" * 100] * 200_000)
    done = True
    await counting

    assert turns > 20


@pytest.mark.parametrize("key", [None, "k"], ids=["plain", "with options"])
async def test_a_list_larger_than_the_buffer_goes_through_in_parts(
    broker: FakeBroker, key: str | None
) -> None:
    """D2: the bound holds for lists too, none of the requests is larger."""
    async with ternmq.connect(broker.url, buffer_messages_max=100) as mq:
        receipt = await mq.send_many("orders", [b"x"] * 1000, key=key)
        assert mq.stats().buffered == 0

    assert len(receipt) == 1000
    assert receipt.failures == []
    assert max(BatchView(batch).count for batch in broker.published) <= 100


@pytest.mark.parametrize(
    "options",
    [{}, {"key": "k"}, {"order_key": "k"}, {"delay": 60}],
    ids=["plain", "with options", "ordered", "for later"],
)
@pytest.mark.parametrize("count", [11, 5_000])
async def test_a_list_over_the_bound_is_told_at_once_and_nothing_of_it_is_sent(
    broker: FakeBroker, count: int, options: dict[str, Any]
) -> None:
    """D2: where the application chose to be told."""
    broker.delay_groups = ["later"]
    async with ternmq.connect(broker.url, buffer_messages_max=10, on_full="raise") as mq:
        with pytest.raises(BufferFull, match=f"this list has {count} messages"):
            await mq.send_many("orders", [b"x"] * count, **options)
        with pytest.raises(BufferFull, match=f"this list has {count} messages"):
            await mq.send_many("orders", [b"x"] * count, wait_for_store=False, **options)
        with pytest.raises(BufferFull, match=f"this list has {count} messages"):
            mq.send_many_nowait("orders", [b"x"] * count, **options)
        assert (broker.published, mq.stats().buffered, mq.stats().buffered_size) == ([], 0, 0)

        await mq.send_many("orders", [b"x"] * 10, **options)
        assert (mq.stats().buffered, mq.stats().buffered_size) == (0, 0)


async def test_what_a_cancelled_list_was_promised_is_given_back(broker: FakeBroker) -> None:
    """D2: the bound counts what is under way, not what nobody sends any more."""
    broker.behave(Command.PUBLISH, lambda peer, frame: True)
    options = {"on_full": "raise", "batch_rows_max": 1, "inflight_max": 2, "delivery_timeout": 1}
    async with ternmq.connect(broker.url, **options) as mq:  # type: ignore[arg-type]
        sending = asyncio.create_task(mq.send_many("orders", [bytes(400_000)] * 20))
        await until(lambda: mq.stats().under_way == 2)
        assert mq.stats().buffered == 20
        sending.cancel()
        await asyncio.wait([sending])
        assert mq.stats().buffered == 2


# Lists that nobody waits for.


@pytest.mark.parametrize(
    "options",
    [{}, {"key": "k"}, {"order_key": "k"}, {"delay": 60}],
    ids=["plain", "with options", "ordered", "for later"],
)
@pytest.mark.parametrize("blocking", [True, False], ids=["nowait", "when there is room"])
async def test_a_list_is_sent_one_way(
    broker: FakeBroker, blocking: bool, options: dict[str, Any]
) -> None:
    """R8: per batch, waiting for the store or not."""
    broker.delay_groups = ["later"]
    bodies = [b"%d" % at for at in range(3_000)]
    async with ternmq.connect(broker.url, batch_rows_max=1_000) as mq:
        if blocking:
            mq.send_many_nowait("orders", bodies, **options)
        else:
            receipt = await mq.send_many("orders", bodies, wait_for_store=False, **options)
            assert (len(receipt), receipt.waited, receipt.failures) == (3_000, False, [])
            with pytest.raises(BadRequest, match="wait_for_store=False"):
                receipt[0]
        await mq.flush()
        assert stored_bodies(broker, "orders") == bodies
        assert (mq.stats().sent, mq.stats().buffered_size) == (3_000, 0)
    assert 3 <= len(broker.published) < 20, "batches, not messages"


async def test_a_one_way_list_waits_for_room_and_for_nothing_else(broker: FakeBroker) -> None:
    """R8, D2: answers come later; the buffer's bound holds back."""
    held: list[tuple[Peer, Frame]] = []

    def hold(peer: Peer, frame: Frame) -> bool:
        held.append((peer, frame))
        return True

    broker.behave(Command.PUBLISH, hold)
    async with ternmq.connect(broker.url, buffer_messages_max=100, batch_rows_max=50) as mq:
        await mq.send_many("orders", [b"x"] * 100, wait_for_store=False)
        more = asyncio.create_task(mq.send_many("orders", [b"y"] * 50, wait_for_store=False))
        await until(lambda: len(held) == 2)
        assert not more.done()
        while not more.done() or mq.stats().buffered:
            for peer, frame in held:
                receipt = broker.store(frame.payload)
                peer.answer(frame.command, frame.correlation, receipt)
            held.clear()
            await asyncio.sleep(0)
    assert stored_bodies(broker, "orders") == [b"x"] * 100 + [b"y"] * 50


async def test_messages_of_a_one_way_list_that_are_not_stored_are_told_one_by_one(
    broker: FakeBroker,
) -> None:
    """R8: as those of send_nowait."""
    told: list[str] = []
    broker.refuse(Command.PUBLISH, BadRequest("not today"))
    async with ternmq.connect(broker.url, on_error=lambda topic, _: told.append(topic)) as mq:
        mq.send_many_nowait("orders", [b"a", b"b"])
        await mq.flush()
        assert (told, mq.stats().failed) == (["orders", "orders"], 2)


async def test_a_list_that_nobody_waits_for_cannot_be_confirmed(mq: ternmq.Client) -> None:
    """R8: wrong calls are told."""
    with pytest.raises(BadRequest, match="wait_for_store is 'no'"):
        await mq.send_many("orders", [b"x"], wait_for_store="no")  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="confirm_group"):
        await mq.send_many("orders", [b"x"], wait_for_store=False, confirm_group="billing")
    with pytest.raises(BadRequest, match="confirm_group"):
        mq.send_many_nowait("orders", [b"x"], confirm_group="billing")


@pytest.mark.parametrize("limit", ["client", "topic"])
async def test_a_body_over_the_size_limit_is_told_at_once(broker: FakeBroker, limit: str) -> None:
    """D2: of this client or of its topic, also one-way."""
    if limit == "topic":
        broker.body_sizes = {"orders": 65_536}
    options: dict[str, Any] = {} if limit == "topic" else {"body_size_max": 65_536}
    async with ternmq.connect(broker.url, **options) as mq:
        good, bad = bytes(65_536), bytes(65_537)
        with pytest.raises(TooLarge, match="at most 65536"):
            mq.send_nowait("orders", bad)
        with pytest.raises(TooLarge, match="at most 65536"):
            await mq.send("orders", bad, key="k")
        with pytest.raises(TooLarge, match=r"message 1: .*at most 65536"):
            await mq.send_many("orders", [good, bad])
        with pytest.raises(TooLarge, match=r"message 1: .*at most 65536"):
            mq.send_many_nowait("orders", [good, ternmq.Outgoing(body=bad)])
        mq.send_nowait("orders", good)
        await mq.send_many("orders", [good])
        if limit == "topic":
            await mq.send("other", bad)
    assert mq.config.body_size_max >= 65_536


# Short lists share batches.


async def test_short_lists_of_many_coroutines_share_batches(
    broker: FakeBroker, mq: ternmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each list gets its own part of the answer; single messages join them."""
    monkeypatch.setattr(accumulator, "OPEN_AGE_MAX_S", 60)  # However busy the machine is.
    lists = [[b"%d-%d" % (at, row) for row in range(1 + at % 3)] for at in range(100)]
    alone = asyncio.create_task(mq.send("orders", b"alone"))
    receipts = await asyncio.gather(*(mq.send_many("orders", bodies) for bodies in lists))
    single = await alone

    assert len(broker.published) == 1
    stored = stored_bodies(broker, "orders")
    assert stored == [b"alone", *(body for bodies in lists for body in bodies)]
    assert single.sequence == 0
    view = BatchView(broker.batches["orders"][0])
    for bodies, receipt in zip(lists, receipts, strict=True):
        assert len(receipt) == len(bodies)
        assert [stored[each.sequence] for each in receipt] == bodies
        assert [each.id for each in receipt] == [view.message_id(r.sequence) for r in receipt]
    assert mq.stats().sent == len(stored)
    assert mq.stats().buffered == 0


async def test_a_row_that_fits_nowhere_fails_only_its_own_list(broker: FakeBroker) -> None:
    """The batch is halved until the culprit is alone."""

    def no_x(peer: Peer, frame: Frame) -> bool:
        if b"x" in BatchView(frame.payload).bodies():
            peer.fail(frame.command, frame.correlation, TooLarge("no x"))
            return True
        return False

    broker.behave(Command.PUBLISH, no_x)
    async with ternmq.connect(broker.url) as mq:
        first, second, third = await asyncio.gather(
            mq.send_many("orders", [b"a", b"b", b"c"]),
            mq.send_many("orders", [b"d", b"x", b"e"]),
            mq.send_many("orders", [b"f"]),
        )
        with pytest.raises(TooLarge):
            await mq.send_many("orders", [b"x"])

    stored = stored_bodies(broker, "orders")
    assert [stored[each.sequence] for each in first] == [b"a", b"b", b"c"]
    assert [stored[each.sequence] for each in third] == [b"f"]
    assert [rows for rows, _ in second.failures] == [range(1, 2)]
    assert (stored[second[0].sequence], stored[second[2].sequence]) == (b"d", b"e")
    assert sorted(stored) == [b"a", b"b", b"c", b"d", b"e", b"f"]


async def test_lists_and_messages_with_options_may_share_too(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    await asyncio.gather(
        mq.send_many("orders", [b"a", b"b"], key="k"), mq.send_many("orders", [b"c"])
    )

    view = BatchView(broker.published[0])
    assert [view.key(row) for row in range(3)] == ["k", "k", None]


async def test_a_list_that_does_not_fit_the_open_batch_begins_the_next(broker: FakeBroker) -> None:
    async with ternmq.connect(broker.url, batch_rows_max=4) as mq:
        await asyncio.gather(*(mq.send_many("orders", [b"x"] * 3) for _ in range(4)))

    assert [BatchView(batch).count for batch in broker.published] == [3, 3, 3, 3]


async def test_a_cancelled_list_does_not_disturb_the_others(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    lists = [asyncio.create_task(mq.send_many("orders", [b"x"] * 2)) for _ in range(3)]
    await asyncio.sleep(0)
    lists[1].cancel()
    results = await asyncio.gather(*lists, return_exceptions=True)

    assert [type(result).__name__ for result in results] == [
        "BatchReceipt",
        "CancelledError",
        "BatchReceipt",
    ]
    assert mq.stats().buffered == 0
