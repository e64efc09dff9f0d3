"""A consumer on demand pulls what is waited for, and keeps nothing from others."""

import asyncio

import ternmq
from tests.integration.processes import Node
from tests.waiting import until


async def test_only_what_is_waited_for_is_handed_out(shared_node: Node) -> None:
    async with ternmq.connect(shared_node.url) as mq:
        await mq.send_many("on-demand", [b"%d" % n for n in range(10)])
        async with mq.consumer("on-demand", group="g", on_demand=True) as consumer:
            batch = await consumer.next_batch(3, exact=True)
            assert batch is not None
            assert len(batch) == 3
            [line] = await mq.admin.ledger("on-demand", "g")
            assert (line.in_flight, line.ready) == (3, 7)
            batch.ack()
            await consumer.flush()
            [line] = await mq.admin.ledger("on-demand", "g")
            assert (line.acked, line.in_flight, line.ready) == (3, 0, 7)


async def test_unacked_messages_do_not_keep_it_from_more(shared_node: Node) -> None:
    async with ternmq.connect(shared_node.url) as mq:
        await mq.send_many("on-demand-more", [b"%d" % n for n in range(3_000)])
        async with mq.consumer("on-demand-more", group="g", on_demand=True, prefetch=1) as consumer:
            held: list[ternmq.Message] = []
            while len(held) < 3_000:
                batch = await consumer.next_batch(500, exact=True)
                assert batch is not None
                held += list(batch)
            assert len({message.sequence for message in held}) == 3_000


async def test_what_came_after_its_caller_had_gone_is_for_others(shared_node: Node) -> None:
    async with (
        ternmq.connect(shared_node.url) as mq,
        mq.consumer("on-demand-gone", group="g", on_demand=True) as consumer,
    ):
        waiting = asyncio.create_task(consumer.next_batch(1))
        await asyncio.sleep(0.1)  # Its pull is at the broker.
        waiting.cancel()
        await asyncio.wait([waiting])
        await mq.send("on-demand-gone", b"x")

        async with mq.consumer("on-demand-gone", group="g") as other:
            found = await asyncio.wait_for(other.next_batch(), 10)
            assert found is not None
            assert found.bodies == [b"x"]
            assert found[0].attempt == 1


async def test_several_callers_wait_at_one_consumer(shared_node: Node) -> None:
    async with (
        ternmq.connect(shared_node.url) as mq,
        mq.consumer("on-demand-many", group="g", on_demand=True) as consumer,
    ):
        waiting = [asyncio.create_task(consumer.next_batch(1, exact=True)) for _ in range(20)]
        for number in range(20):
            await mq.send("on-demand-many", b"%d" % number)
        await until(lambda: all(task.done() for task in waiting), "all have one")
        batches = [task.result() for task in waiting]
        assert sorted(int(each.bodies[0]) for each in batches if each) == list(range(20))
