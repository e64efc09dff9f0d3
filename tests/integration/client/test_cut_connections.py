"""A network that cuts connections at any byte: nothing is lost, nothing is stored twice."""

import asyncio

import pytest

import ternmq
from tests.integration.processes import NodeFactory
from tests.integration.proxy import PROXIED, proxied
from tests.integration.verifiable_clients import balanced, whole_topic

TOPIC = "orders"


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_every_message_is_stored_once_however_often_the_connection_is_cut(
    seed: int, node_factory: NodeFactory
) -> None:
    """R3, D3: repeats are recognised; the receipt of a repeat is the first one's."""
    node = node_factory(environment=PROXIED)
    stored: dict[str, int] = {}

    async def singly(mq: ternmq.Client, worker: int) -> None:
        for number in range(60):
            body = f"{worker}.{number}"
            receipt = await mq.send(TOPIC, body.encode())
            stored[body] = receipt.sequence

    async def many(mq: ternmq.Client) -> None:
        for call in range(15):
            bodies = [f"many.{call}.{row}" for row in range(50)]
            receipts = await mq.send_many(TOPIC, [body.encode() for body in bodies])
            assert not receipts.failures
            stored.update(
                (body, receipt.sequence) for body, receipt in zip(bodies, receipts, strict=True)
            )

    async with proxied(node, seed=seed) as proxy:
        proxy.cut_after = (200, 12_000)
        async with ternmq.connect(node.url, batch_rows_max=20) as mq, asyncio.TaskGroup() as tasks:
            tasks.create_task(many(mq))
            for worker in range(8):
                tasks.create_task(singly(mq, worker))
        assert proxy.cuts >= 3
        proxy.cut_after = None
        async with ternmq.connect(node.url) as mq:
            found = await whole_topic(mq, TOPIC)

    assert len(found) == len(stored) == 8 * 60 + 15 * 50
    assert {body: at for at, body in found.items()} == stored


async def test_a_consumer_goes_on_however_often_its_connection_is_cut(
    node_factory: NodeFactory,
) -> None:
    """D5, Q3: each message at least once, none skipped; the ledger agrees at the end."""
    node = node_factory(environment=PROXIED)
    sent = {str(number) for number in range(3000)}
    got: set[str] = set()
    async with proxied(node, seed=4) as proxy:
        async with ternmq.connect(node.url) as mq:
            await mq.send_many(TOPIC, [body.encode() for body in sent])
            proxy.cut()
            proxy.cut_after = (3_000, 30_000)
            async with asyncio.timeout(60), mq.consumer(TOPIC, group="g", prefetch=100) as consumer:
                async for message in consumer:
                    got.add(message.body.decode())
                    message.ack()
                    if got == sent:
                        break
                proxy.cut_after = None
                await consumer.flush()
            assert proxy.cuts >= 3
        async with ternmq.connect(node.url) as mq:
            (line,) = await mq.admin.ledger(TOPIC, "g")
            assert balanced(line)
            assert line.acked == 3000
