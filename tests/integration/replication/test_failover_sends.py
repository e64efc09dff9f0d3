"""Sends under way when a master dies go on, to another broker group if theirs takes none (Q12)."""

import asyncio
import os
import signal
from pathlib import Path

import ternmq
from tests.integration.broker_pair import make_pair
from tests.integration.processes import NodeFactory
from tests.waiting import until

SENDERS = 16  # Each to a topic of its own, so that about half of the batches go to the pair.
ANSWERED_WITHIN_S = 15
BODY = os.urandom(900_000)  # More than lies in sockets: the replica cannot have all of them.


async def test_what_the_dead_master_had_not_answered_is_taken_by_another_group(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """The replica leads without one of its own: read-only. It has not stored what it refuses, so
    nobody has to be told of an error while another group takes messages."""
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path)
    await asyncio.to_thread(node_factory.broker_server, pair.url, "other")
    first, replica = await asyncio.to_thread(lambda: (pair.master(), pair.replica()))
    receipts: list[ternmq.Receipt] = []
    async with ternmq.connect(pair.url) as mq:
        await until(lambda: len(mq.cluster.masters()) == 2)
        for number in range(SENDERS):
            await mq.admin.create_topic(f"orders.{number}")

        async def send(number: int) -> None:
            receipts.append(await mq.send(f"orders.{number}", BODY))

        os.kill(replica.pid, signal.SIGSTOP)
        senders = [asyncio.create_task(send(number)) for number in range(SENDERS)]
        await until(lambda: receipts and mq.stats().under_way == SENDERS - len(receipts))
        answered = len(receipts)
        first.kill()
        os.kill(replica.pid, signal.SIGCONT)
        await asyncio.to_thread(pair.wait_served, first)
        # What the dead master had sent may still have reached the replica: it holds such until
        # there is a second member again, and answers then.
        await asyncio.wait(senders, timeout=ANSWERED_WITHIN_S)

        await asyncio.to_thread(first.start)
        await asyncio.gather(*senders)
        await asyncio.to_thread(pair.wait_in_sync, 2)
        stored = [
            message.id for number in range(SENDERS) async for message in mq.read(f"orders.{number}")
        ]

    assert answered < SENDERS
    assert sorted(stored) == sorted(receipt.id for receipt in receipts)
    assert len(stored) == SENDERS
