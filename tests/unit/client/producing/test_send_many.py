"""`send_many`: splitting, order, what is checked before, what failed after."""

import asyncio

import pytest

import ternmq
from ternmq.batch.view import BatchView
from ternmq.client.producing import accumulator
from ternmq.core.errors import BadRequest, DiskFull, TooLarge
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


async def test_a_list_larger_than_the_buffer_goes_through(broker: FakeBroker) -> None:
    async with ternmq.connect(
        broker.url, buffer_messages_max=100, batch_rows_max=50, on_full="raise"
    ) as mq:
        receipt = await mq.send_many("orders", [b"x"] * 1000)
        await until(lambda: mq.stats().buffered == 0)

    assert len(receipt) == 1000
    assert receipt.failures == []


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
