"""Connections that blink: nothing is lost, nothing is stored twice, leases are kept."""

import asyncio
from collections import Counter

import ternmq
from tests.integration.processes import Node, NodeFactory
from tests.waiting import until


def cut(mq: ternmq.Client) -> None:
    """Cut the client's connections to brokers, as a bad network would."""
    for link in mq.cluster._servers.values():
        if link.connection is not None:
            link.connection.abort()


async def test_a_consumer_whose_connection_blinks_keeps_its_leases(node: Node) -> None:
    async with ternmq.connect(node.url) as mq, ternmq.connect(node.url) as other:
        await mq.send_many("orders", [b"%d" % at for at in range(200)])
        async with mq.consumer("orders", group="billing", prefetch=200) as consumer:
            messages = [await anext(consumer) for _ in range(100)]
            async with other.consumer("orders", group="billing") as rival:
                cut(mq)
                waiting = asyncio.ensure_future(anext(rival))
                messages += [await anext(consumer) for _ in range(100)]
                for message in messages:
                    message.ack()
                await consumer.flush()
                assert not waiting.done()
                waiting.cancel()
        [line] = await mq.admin.ledger("orders", "billing")

    assert [message.attempt for message in messages] == [1] * 200
    assert (line.acked, line.total) == (200, 200)


async def test_everything_comes_through_a_bad_network(node: Node) -> None:
    """Q13, D8, D11: stored once each, handed out, acked, however often connections are cut."""
    receipts: list[str] = []
    seen: Counter[str] = Counter()
    stop = asyncio.Event()

    async def send(mq: ternmq.Client, name: int) -> None:
        at = 0
        while not stop.is_set():
            if at % 10 == 0:
                many = await mq.send_many("orders", [b"%d-%d" % (name, at)] * 50)
                assert not many.failures
                receipts.extend(receipt.id for receipt in many)
            else:
                receipts.append((await mq.send("orders", b"%d-%d" % (name, at))).id)
            at += 1

    async def consume(mq: ternmq.Client) -> None:
        async with mq.consumer("orders", group="billing", prefetch=100) as consumer:
            async for message in consumer:
                seen[message.id] += 1
                message.ack()

    async with (
        ternmq.connect(node.url, app="producer") as producer,
        ternmq.connect(node.url, app="consumer") as consumer,
    ):
        consuming = asyncio.create_task(consume(consumer))
        senders = [asyncio.create_task(send(producer, name)) for name in range(4)]
        for _ in range(12):
            await asyncio.sleep(0.15)
            cut(producer)
            cut(consumer)
        stop.set()
        await asyncio.gather(*senders)
        stored = [message.id async for message in producer.read("orders")]
        await until(lambda: len(seen) >= len(stored), seconds=30)
        consuming.cancel()
        await asyncio.wait([consuming])
        [line] = await producer.admin.ledger("orders", "billing")

    assert len(stored) == len(set(stored))
    assert set(stored) == set(receipts) == set(seen)
    assert (line.acked, line.total) == (len(stored), len(stored))


async def test_a_consumer_drops_what_it_already_holds(node_factory: NodeFactory) -> None:
    """D5: leases die with the broker, the rows come again; what is in hand is not shown twice."""
    node = node_factory(environment={"TERN_SESSION_GRACE_MS": "0"})
    async with ternmq.connect(node.url) as mq:
        await mq.send_many("orders", [b"%d" % at for at in range(10)])
        async with mq.consumer("orders", group="billing", prefetch=20) as consumer:
            in_hand = [await anext(consumer) for _ in range(10)]
            await asyncio.to_thread(node.kill)
            await asyncio.to_thread(node.start)

            async def came_again() -> bool:  # At once, on a fresh connection.
                [line] = await mq.admin.ledger("orders", "billing")
                return line.in_flight == 10

            await until(came_again)
            async with asyncio.timeout(20):
                again = asyncio.ensure_future(anext(consumer))
                await asyncio.wait([again], timeout=0.3)
                assert not again.done()
                for message in in_hand:
                    message.ack()
                await consumer.flush()
                await mq.send("orders", b"new")
                assert (await again).body == b"new"
        [line] = await mq.admin.ledger("orders", "billing")

    assert (line.acked, line.ready) == (10, 1)
