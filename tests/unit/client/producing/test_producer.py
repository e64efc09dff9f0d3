"""Sending: what shares a request, what is sent again, and what the caller is told."""

import asyncio
from collections.abc import Sized
from functools import partial
from typing import Any

import pytest

import ternmq
from ternmq.batch.encoder import encode_messages
from ternmq.batch.properties import PropertyValue
from ternmq.batch.view import BatchView
from ternmq.client.producing import producer_batch
from ternmq.client.producing.accumulator import row_size
from ternmq.client.producing.producer import TOPICS_KEPT_MAX
from ternmq.client.producing.sender import AHEAD_MAX
from ternmq.core.errors import (
    BadRequest,
    BufferFull,
    Closed,
    DiskFull,
    ReadOnly,
    SendUnknown,
    TernError,
    TooLarge,
    Unavailable,
)
from ternmq.rpc.server import Peer
from ternmq.wire.frame import Frame
from ternmq.wire.numbers import Command
from tests.unit.client.fake_broker import FakeBroker, fake_broker
from tests.waiting import until


def _has(things: Sized, count: int) -> bool:
    return len(things) == count


async def test_a_receipt_says_where_the_message_is(mq: ternmq.Client) -> None:
    """R3: id, topic, broker, sequence, duplicate, trace flag."""
    await mq.send("orders", b"first")
    receipt = await mq.send("orders", b"second")

    assert receipt.topic == "orders"
    assert receipt.sequence == 1
    assert receipt.broker_group == "main"
    assert receipt.stored_at.timestamp() == 1_700_000_000
    assert not receipt.duplicate
    assert not receipt.traced
    assert len(receipt.id) == 26


async def test_the_id_of_the_receipt_is_the_id_in_the_batch(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    receipts = await asyncio.gather(*(mq.send("orders", b"%d" % at) for at in range(5)))

    view = BatchView(broker.published[0])
    assert [receipt.id for receipt in receipts] == [view.message_id(row) for row in range(5)]


async def test_senders_of_one_turn_share_a_request(broker: FakeBroker, mq: ternmq.Client) -> None:
    await asyncio.gather(*(mq.send("orders", b"%d" % at) for at in range(100)))

    assert len(broker.published) == 1
    assert BatchView(broker.published[0]).count == 100


async def test_what_is_sent_while_requests_are_under_way_piles_up(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    held: list[tuple[Peer, Frame]] = []

    def hold(peer: Peer, frame: Frame) -> bool:
        held.append((peer, frame))
        return True

    broker.behave(Command.PUBLISH, hold)
    sends = []
    for at in range(2):
        sends.append(asyncio.create_task(mq.send("orders", b"early")))
        await until(partial(_has, held, at + 1))
    sends += [asyncio.create_task(mq.send("orders", b"%d" % at)) for at in range(50)]
    await asyncio.sleep(0)
    assert len(held) == 2

    broker.behaviours.clear()
    for peer, frame in held:
        peer.answer(frame.command, frame.correlation, broker.store(frame.payload))
    await asyncio.gather(*sends)

    counts = [BatchView(batch).count for batch in broker.published[2:]]
    assert sum(counts) == 50
    assert len(counts) < 5  # One, unless this machine was so busy that an answer overtook some.


async def test_after_a_cut_connection_the_same_bytes_are_sent_again(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    """The broker stored it, the answer got lost: the repeat is recognised."""

    def store_and_cut(peer: Peer, frame: Frame) -> bool:
        broker.behaviours.clear()
        broker.store(bytearray(frame.payload))
        peer.abort()
        return True

    broker.behave(Command.PUBLISH, store_and_cut)
    receipt = await mq.send("orders", b"paid", key="o-1")

    assert len(broker.published) == 2
    assert broker.published[0] == broker.published[1]
    assert receipt.duplicate
    assert receipt.sequence == 0
    assert mq.stats().repeats == 1


async def test_several_requests_come_back_in_their_order_after_a_cut(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    broker.behave(Command.PUBLISH, lambda peer, frame: True)
    sends = []
    for at in range(6):
        sends.append(asyncio.create_task(mq.send(f"topic-{at}", b"%d" % at)))
        await until(partial(_has, broker.published, at + 1))
    broker.behaviours.clear()
    broker.cut_all()
    await asyncio.gather(*sends)

    assert broker.published[6:] == broker.published[:6]


async def test_no_answer_means_sending_again_on_the_same_connection(broker: FakeBroker) -> None:
    silent = [True]
    broker.behave(Command.PUBLISH, lambda peer, frame: silent[0])
    async with ternmq.connect(broker.url, request_timeout=0.2) as mq:
        send = asyncio.create_task(mq.send("orders", b"paid"))
        await until(lambda: len(broker.published) == 2)
        silent[0] = False
        receipt = await send

    assert receipt.sequence == 0
    assert len(set(broker.published)) == 1


async def test_nobody_runs_too_far_ahead_of_an_unanswered_request(broker: FakeBroker) -> None:
    """The broker remembers the last 512 batches of a producer; a repeat must be among them."""
    held: list[tuple[Peer, Frame]] = []

    def hold_the_first(peer: Peer, frame: Frame) -> bool:
        if not held:
            held.append((peer, frame))
            return True
        return False

    broker.behave(Command.PUBLISH, hold_the_first)
    async with ternmq.connect(broker.url, batch_rows_max=1) as mq:
        first = asyncio.create_task(mq.send("slow", b"x"))
        await until(lambda: held)
        many = asyncio.create_task(mq.send_many("fast", [b"x"] * 600))
        await until(lambda: len(broker.published) == 1 + AHEAD_MAX)
        assert not many.done()
        [(peer, frame)] = held
        peer.answer(frame.command, frame.correlation, broker.store(frame.payload))
        await asyncio.gather(first, many)

    assert len(broker.published) == 601


async def test_time_is_up_after_bytes_left_means_unknown(broker: FakeBroker) -> None:
    broker.behave(Command.PUBLISH, lambda peer, frame: True)
    async with ternmq.connect(broker.url, delivery_timeout=0.3) as mq:
        with pytest.raises(SendUnknown, match="may or may not be stored"):
            await mq.send("orders", b"paid")
        stats = mq.stats()

    assert stats.unknown == 1
    assert stats.buffered == 0


async def test_what_kept_the_answer_away_is_told_when_time_is_up(broker: FakeBroker) -> None:
    broker.refuse(Command.PUBLISH, Unavailable("the registry (sqlite) does not answer"))
    async with ternmq.connect(broker.url, delivery_timeout=0.3) as mq:
        with pytest.raises(SendUnknown, match=r"in time \(last: the registry \(sqlite\) does not"):
            await mq.send("orders", b"paid")


async def test_time_is_up_without_a_connection_means_unavailable() -> None:
    async with fake_broker() as broker:
        mq = await ternmq.connect(broker.url, delivery_timeout=0.3)
    with pytest.raises(Unavailable, match="they are not stored"):
        await mq.send("orders", b"paid")
    await mq.close()


async def test_a_wrong_address_shows_at_connect() -> None:
    with pytest.raises(Unavailable, match="tern up"):
        await ternmq.connect("tern://127.0.0.1:1")


@pytest.mark.parametrize("error", [DiskFull("no space"), ReadOnly("reading only")])
async def test_a_broker_that_cannot_store_now_is_tried_three_times(
    broker: FakeBroker, mq: ternmq.Client, error: TernError
) -> None:
    """J9, R20: three tries, then the caller is told what the broker said."""
    broker.refuse(Command.PUBLISH, error)
    with pytest.raises(type(error), match=error.message):
        await mq.send("orders", b"paid")

    assert len(broker.published) == 3
    assert mq.stats().failed == 1


async def test_a_refusal_that_passes_is_not_seen(broker: FakeBroker, mq: ternmq.Client) -> None:
    broker.refuse(Command.PUBLISH, DiskFull("no space"), times=2)
    receipt = await mq.send("orders", b"paid")

    assert receipt.sequence == 0
    assert len(set(broker.published)) == 1


async def test_a_row_that_is_too_large_does_not_hurt_its_neighbours(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    def refuse_large(peer: Peer, frame: Frame) -> bool:
        if any(len(body) > 10 for body in BatchView(frame.payload).bodies()):
            peer.fail(frame.command, frame.correlation, TooLarge("a body has more than 10 bytes"))
            return True
        return False

    broker.behave(Command.PUBLISH, refuse_large)
    bodies = [b"small"] * 5 + [b"far too large"] + [b"small"] * 4
    results = await asyncio.gather(
        *(mq.send("orders", body) for body in bodies), return_exceptions=True
    )

    failed = [at for at, result in enumerate(results) if isinstance(result, TooLarge)]
    assert failed == [5]
    ids = [result.id for result in results if isinstance(result, ternmq.Receipt)]
    stored = [BatchView(batch) for batch in broker.batches["orders"]]
    assert sorted(ids) == sorted(
        view.message_id(row) for view in stored for row in range(view.count)
    )


async def test_every_waiting_sender_gets_an_error_of_its_own(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    broker.refuse(Command.PUBLISH, ternmq.TopicNotFound("create it first"))
    results = await asyncio.gather(
        *(mq.send("orders", b"paid") for _ in range(3)), return_exceptions=True
    )

    assert all(isinstance(result, ternmq.TopicNotFound) for result in results)
    assert len({id(result) for result in results}) == 3


async def test_a_full_buffer_raises_where_that_was_chosen(broker: FakeBroker) -> None:
    """D2: over the bound the caller is told at once."""
    broker.behave(Command.PUBLISH, lambda peer, frame: True)
    options = {"buffer_messages_max": 2, "on_full": "raise", "delivery_timeout": 0.3}
    async with ternmq.connect(broker.url, **options) as mq:  # type: ignore[arg-type]
        sends = [asyncio.create_task(mq.send("orders", b"paid")) for _ in range(2)]
        await until(lambda: mq.stats().buffered == 2)
        with pytest.raises(BufferFull, match="buffer_messages_max"):
            await mq.send("orders", b"one too many")
        with pytest.raises(BufferFull):
            mq.send_nowait("orders", b"one too many")
        await asyncio.gather(*sends, return_exceptions=True)


async def test_a_full_buffer_makes_senders_wait_in_line(broker: FakeBroker) -> None:
    async with ternmq.connect(broker.url, buffer_messages_max=3) as mq:
        receipts = await asyncio.gather(*(mq.send("orders", b"%d" % at) for at in range(20)))

        assert sorted(receipt.sequence for receipt in receipts) == list(range(20))
        assert mq.stats().buffered == 0


async def test_large_messages_fill_the_buffer_by_bytes(broker: FakeBroker) -> None:
    broker.behave(Command.PUBLISH, lambda peer, frame: True)
    options = {"buffer_size_max": 65_536, "on_full": "raise", "delivery_timeout": 0.3}
    async with ternmq.connect(broker.url, **options) as mq:  # type: ignore[arg-type]
        send = asyncio.create_task(mq.send("orders", bytes(60_000)))
        await until(lambda: mq.stats().buffered == 1)
        with pytest.raises(BufferFull):
            mq.send_nowait("orders", bytes(10_000))
        with pytest.raises(SendUnknown):
            await send


async def test_one_way_messages_are_sent_without_a_word(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    for at in range(10):
        mq.send_nowait("log", b"%d" % at)
    await mq.flush()

    assert BatchView(broker.published[0]).bodies() == [b"%d" % at for at in range(10)]
    assert mq.stats().sent == 10


async def test_a_one_way_message_that_fails_is_told_to_on_error(broker: FakeBroker) -> None:
    told: list[tuple[str, TernError]] = []
    broker.refuse(Command.PUBLISH, ternmq.TopicNotFound("create it first"))
    async with ternmq.connect(broker.url, on_error=lambda *args: told.append(args)) as mq:
        mq.send_nowait("log", b"paid")
        await mq.flush()

    assert [(topic, error.code) for topic, error in told] == [("log", "topic_not_found")]


async def test_closing_sends_what_was_accepted(broker: FakeBroker) -> None:
    async with ternmq.connect(broker.url) as mq:
        mq.send_nowait("log", b"last words")

    assert BatchView(broker.published[0]).bodies() == [b"last words"]
    with pytest.raises(Closed):
        await mq.send("log", b"too late")


async def test_a_cancelled_send_does_not_disturb_others(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    sends = [asyncio.create_task(mq.send("orders", b"%d" % at)) for at in range(3)]
    await asyncio.sleep(0)
    sends[1].cancel()
    results = await asyncio.gather(*sends, return_exceptions=True)

    assert isinstance(results[0], ternmq.Receipt)
    assert isinstance(results[1], asyncio.CancelledError)
    assert isinstance(results[2], ternmq.Receipt)
    assert mq.stats().buffered == 0


async def test_all_topics_share_one_connection(broker: FakeBroker, mq: ternmq.Client) -> None:
    """J17: one connection to the broker however many topics (the other hello is meta's)."""
    await asyncio.gather(*(mq.send(f"topic-{at}", b"x") for at in range(50)))

    assert len(broker.hellos) == 2
    assert len({hello.session for hello in broker.hellos}) == 1


async def test_columns_arrive_as_they_were_sent(broker: FakeBroker, mq: ternmq.Client) -> None:
    properties: dict[str, PropertyValue] = {
        "amount": 12,
        "paid": True,
        "rate": 0.5,
        "note": "ü",
        "raw": b"\x00",
    }
    await asyncio.gather(
        mq.send("orders", b"", key=None),
        mq.send("orders", b"x", key="", tag="vip", properties=properties, priority=9, ttl=60),
    )

    view = BatchView(broker.published[0])
    assert view.bodies() == [b"", b"x"]
    assert [view.key(0), view.key(1)] == [None, ""]
    assert [view.tag(0), view.tag(1)] == [None, "vip"]
    assert view.properties(1) == properties
    assert [view.priority(0), view.priority(1)] == [0, 9]
    assert view.expire_at_ms(0) is None
    assert view.expire_at_ms(1) == view.born_at_ms(1) + 60_000
    assert view.app == "shop"


async def test_topics_without_traffic_are_forgotten(broker: FakeBroker, mq: ternmq.Client) -> None:
    """Q18: tens of thousands of topics cost a client nothing once they are quiet."""
    names = [f"topic-{at}" for at in range(2 * TOPICS_KEPT_MAX + 10)]
    for first in range(0, len(names), 500):
        await asyncio.gather(*(mq.send(name, b"x") for name in names[first : first + 500]))

    assert len(mq.sender()._accumulators) <= TOPICS_KEPT_MAX + 1
    assert mq.stats().sent == len(names)


@pytest.fixture
def unwritable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder fails on every message whose key is 'bad', with an error of no kind of ours."""
    encode = encode_messages

    def failing(messages: list[ternmq.Outgoing], **rest: Any) -> bytearray:
        if any(message.key == "bad" for message in messages):
            raise ZeroDivisionError("nobody thought of this")
        return encode(messages, **rest)

    monkeypatch.setattr(producer_batch, "encode_messages", failing)


@pytest.mark.usefixtures("unwritable")
async def test_a_message_that_does_not_encode_fails_alone(mq: ternmq.Client) -> None:
    async with asyncio.timeout(10):
        results = await asyncio.gather(
            *(mq.send("orders", b"%d" % at, key="bad" if at == 3 else "ok") for at in range(8)),
            return_exceptions=True,
        )
        await mq.flush()

    assert [at for at, each in enumerate(results) if isinstance(each, BaseException)] == [3]
    assert isinstance(results[3], BadRequest)
    assert "nobody thought of this" in str(results[3])
    assert mq.stats().buffered == mq.stats().buffered_size == 0


@pytest.mark.usefixtures("unwritable")
async def test_of_many_messages_those_that_do_not_encode_fail_alone(mq: ternmq.Client) -> None:
    messages = [ternmq.Outgoing(body=b"", key="bad" if at in (0, 5) else "ok") for at in range(9)]
    async with asyncio.timeout(10):
        receipt = await mq.send_many("orders", messages)
        await mq.flush()

    assert sorted(at for rows, _ in receipt.failures for at in rows) == [0, 5]
    assert mq.stats().sent == 7


async def test_a_refused_message_harms_nobody_else(mq: ternmq.Client) -> None:
    async with asyncio.timeout(10):
        good = [asyncio.create_task(mq.send("orders", b"good")) for _ in range(5)]
        with pytest.raises(BadRequest, match="property 'a'"):
            await mq.send("orders", b"bad", properties={"a": "\ud800"})
        await asyncio.gather(*good)
        await mq.flush()


@pytest.mark.parametrize(
    "options",
    [
        {"properties": {"a": "y" * 1_000_000}},
        {"properties": {"a": b"y" * 1_000_000}},
        {"properties": {"y" * 1_000_000: 1}},
        {"properties": {str(at): 10**3999 for at in range(256)}},
    ],
    ids=["text", "bytes", "name", "int"],
)
async def test_properties_count_against_the_send_buffer(broker: FakeBroker, options: Any) -> None:
    """The bound is on memory, whatever part of a message takes it."""
    broker.behave(Command.PUBLISH, lambda peer, frame: True)
    async with ternmq.connect(broker.url, buffer_size_max=65536, delivery_timeout=0.5) as mq:
        mq.send_nowait("orders", b"", **options)
        with pytest.raises(BufferFull):
            mq.send_nowait("orders", b"", **options)
        assert mq.stats().buffered_size > 300_000


def test_keys_and_tags_count_too() -> None:
    bare = row_size(ternmq.Outgoing(body=b"xx"))

    assert row_size(ternmq.Outgoing(body=b"xx", key="ä" * 10, tag="b", order_key="c")) == bare + 22
