"""Producers against a real node: receipts, repeats over kill -9, fork, bounds."""

import asyncio
import multiprocessing
import random
from datetime import timedelta

import pytest

import ternmq
from tests.integration.processes import Node, NodeFactory
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded")


async def read_bodies(mq: ternmq.Client, topic: str) -> list[bytes]:
    return [body async for batch in mq.read(topic).batches() for body in batch.bodies]


async def test_everything_sent_is_read_back(node: Node) -> None:
    async with ternmq.connect(node.url, app="shop") as mq:
        single = await mq.send("orders", b"", key="", tag="vip", properties={"amount": 12})
        many = await mq.send_many("orders", [b"%d" % at for at in range(20_000)])
        mq.send_nowait("orders", b"last")
        await mq.flush()
        messages = [message async for message in mq.read("orders")]

    assert [message.sequence for message in messages] == list(range(20_002))
    assert messages[0].key == ""
    assert messages[0].properties == {"amount": 12}
    assert messages[1].key is None
    assert messages[0].id == single.id
    assert [messages[1 + at].id for at in (0, 7777, 19_999)] == [
        many[at].id for at in (0, 7777, 19_999)
    ]
    assert messages[0].stored_at == single.stored_at
    assert messages[-1].body == b"last"


@pytest.mark.parametrize(
    ("flush", "keep", "expected"),
    [("sync", "1GiB", ("synced", True)), ("async", "0", ("written", False))],
)
async def test_a_receipt_says_how_safe_its_message_is_and_whether_it_is_traced(
    node_factory: NodeFactory, flush: str, keep: str, expected: tuple[str, bool]
) -> None:
    """R3: status and trace flag, of a first send and of messages for later."""
    settings = {"TERN_FLUSH": flush, "TERN_DELIVERY_RECORDS_KEEP": keep}
    node = await asyncio.to_thread(node_factory, environment=settings)
    async with ternmq.connect(node.url, app="shop") as mq:
        receipt = await mq.send("orders", b"now")
        [listed] = await mq.send_many("orders", [b"now"])
        later = await mq.send("orders", b"later", delay=3600)

    assert (receipt.status, receipt.traced) == expected
    assert (listed.status, listed.traced) == expected
    assert (later.status, later.traced) == ("synced", False), "a delay server always syncs"


async def test_a_one_way_message_over_its_topics_size_is_told_at_once(node: Node) -> None:
    """D2: producers know what a topic takes, also after it was changed."""
    async with ternmq.connect(node.url, app="shop") as mq, ternmq.connect(node.url) as other:
        settings = ternmq.TopicSettings(body_size_max=65_536)
        await other.admin.create_topic("small", settings)
        await until(lambda: "small" in mq.cluster.body_sizes())
        with pytest.raises(ternmq.TooLarge, match="'small' takes at most 65536"):
            mq.send_nowait("small", bytes(65_537))
        await other.admin.set_topic("small", body_size_max=100_000)
        await until(lambda: mq.cluster.body_sizes()["small"] == 100_000)
        mq.send_nowait("small", bytes(65_537))
        await other.admin.delete_topic("small")
        await until(lambda: "small" not in mq.cluster.body_sizes())


async def test_sends_go_on_over_a_kill_and_nothing_acknowledged_is_lost(node: Node) -> None:
    """Every message is stored exactly once: repeats after the restart are recognised."""
    async with ternmq.connect(node.url, app="shop") as mq:
        stop = asyncio.Event()
        receipts: list[ternmq.Receipt] = []

        async def send(name: int) -> None:
            at = 0
            while not stop.is_set():
                receipts.append(await mq.send("orders", b"%d-%d" % (name, at)))
                at += 1

        senders = [asyncio.create_task(send(name)) for name in range(8)]
        for _ in range(2):
            await asyncio.sleep(0.3)
            await asyncio.to_thread(node.kill)
            await asyncio.to_thread(node.restart)
        await asyncio.sleep(0.3)
        stop.set()
        await asyncio.gather(*senders)
        messages = [message async for message in mq.read("orders")]

    assert sorted(message.id for message in messages) == sorted(receipt.id for receipt in receipts)
    by_sequence = {message.sequence: message.id for message in messages}
    assert all(by_sequence[receipt.sequence] == receipt.id for receipt in receipts)
    assert len({message.body for message in messages}) == len(messages)


async def test_a_long_list_survives_a_kill_in_the_middle(node: Node) -> None:
    bodies = [b"%d" % at for at in range(300_000)]
    async with ternmq.connect(node.url, batch_rows_max=1000) as mq:
        sending = asyncio.create_task(mq.send_many("orders", bodies))
        await until(lambda: mq.stats().sent >= 20_000, every=0.001)
        await asyncio.to_thread(node.kill)
        await asyncio.to_thread(node.restart)
        receipt = await sending

        assert receipt.failures == []
        assert await read_bodies(mq, "orders") == bodies


async def test_an_unknown_topic_is_an_error_of_its_own(node_factory: NodeFactory) -> None:
    node = node_factory(auto_create=False)
    async with ternmq.connect(node.url) as mq:
        with pytest.raises(ternmq.TopicNotFound, match="orders"):
            await mq.send("orders", b"x")
        await mq.admin.create_topic("orders")
        receipt = await mq.send("orders", b"x")

    assert receipt.sequence == 0


async def test_a_body_over_the_limit_of_its_topic_fails_alone(node: Node) -> None:
    async with ternmq.connect(node.url) as mq:
        await mq.admin.create_topic("small", ternmq.TopicSettings(body_size_max=10))
        results = await asyncio.gather(
            *(mq.send("small", b"x" * size) for size in (1, 11, 10)), return_exceptions=True
        )

    assert [isinstance(result, ternmq.TooLarge) for result in results] == [False, True, False]


async def test_a_body_over_four_mib_is_refused(node: Node) -> None:
    """J8."""
    async with ternmq.connect(node.url, compression="none") as mq:
        with pytest.raises(ternmq.TooLarge, match="4 MiB"):
            await mq.send("orders", bytes(4 * 1024 * 1024))
        await mq.send("orders", bytes(4 * 1024 * 1024 - 4096))
    async with ternmq.connect(node.url) as mq:
        large = bytes(range(256)) * 80 + random.Random(1).randbytes(20 * 1024)  # Compress well.
        await mq.send("orders", large * 512)
        with pytest.raises(ternmq.TooLarge, match="1000 times"):
            await mq.send("orders", bytes(20 * 1024 * 1024))  # What would fill a consumer's memory.
        sizes = [len(body) for body in await read_bodies(mq, "orders")]

    assert sizes == [4 * 1024 * 1024 - 4096, 20 * 1024 * 1024]


def _send_ten(url: str, name: int) -> list[str]:
    with ternmq.sync.connect(url, app=f"worker-{name}") as mq:
        return [mq.send("orders", b"%d-%d" % (name, at)).id for at in range(10)]


async def test_forked_workers_send_side_by_side(node: Node) -> None:
    async with ternmq.connect(node.url) as mq:
        await mq.send("orders", b"before")
        with multiprocessing.get_context("fork").Pool(4) as pool:
            sent = await asyncio.to_thread(
                pool.starmap, _send_ten, [(node.url, name) for name in range(8)]
            )
        messages = [message async for message in mq.read("orders")]

    assert len(messages) == 81
    assert {message.id for message in messages[1:]} == {each for ids in sent for each in ids}


async def test_no_delay_at_all_goes_straight_to_the_broker(shared_node: Node) -> None:
    topic = "send-delay-none"
    async with ternmq.connect(shared_node.url, app="shop") as mq:
        receipts = [
            await mq.send(topic, b"0", delay=0),
            await mq.send(topic, b"1", delay=timedelta()),
            (await mq.send_many(topic, [b"2"], delay=0.0))[0],
            (await mq.send_many(topic, [ternmq.Outgoing(body=b"3", delay_ms=0)]))[0],
        ]
        bodies = [message.body async for message in mq.read(topic)]  # At once: nothing waits.
        cancelled = await mq.cancel(receipts[0])

    assert bodies == [b"0", b"1", b"2", b"3"]
    assert [receipt.sequence for receipt in receipts] == [0, 1, 2, 3]
    assert cancelled is ternmq.CancelResult.ALREADY_DISPATCHED
