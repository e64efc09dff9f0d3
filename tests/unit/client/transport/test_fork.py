"""A forked child has connections, a session and a producer id of its own."""

import asyncio
import multiprocessing
import os
from collections.abc import Callable

import pytest

import ternmq
from ternmq.batch.layout import read_producer_header
from ternmq.core.errors import Closed
from tests.unit.client.fake_broker import FakeBroker
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded")


async def in_child(work: Callable[[], None]) -> int:
    """Fork, run `work` in the child, return its exit code; the loop of the parent goes on."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, pid, 0))[1])


async def test_a_forked_child_sends_by_itself(broker: FakeBroker, mq: ternmq.Client) -> None:
    await mq.send("orders", b"parent")

    def child() -> None:
        async def send() -> None:
            await mq.send("orders", b"child")
            await mq.close()

        asyncio.run(send())

    assert await in_child(child) == 0
    await mq.send("orders", b"parent again")

    producers = [
        (header.producer_start, header.producer_random)
        for header in map(read_producer_header, broker.published)
    ]
    assert len(producers) == 3
    assert producers[0] == producers[2] != producers[1]
    assert len({hello.session for hello in broker.hellos}) == 2
    assert len({hello.pid for hello in broker.hellos}) == 2
    assert len(broker.hellos) == 4  # The parent's two connections were not disturbed.


async def test_a_consumer_of_the_parent_is_not_the_childs(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    await mq.send_many("orders", [b"x"] * 4)
    async with mq.consumer("orders", group="billing") as consumer:
        await anext(consumer)

        def child() -> None:
            async def iterate() -> None:
                with pytest.raises(Closed, match="belongs to the parent"):
                    consumer.__aiter__()
                with pytest.raises(Closed, match="belongs to the parent"):
                    await consumer.flush()
                async with mq.consumer("other", group="billing"):
                    pass
                await mq.close()

            asyncio.run(iterate())

        assert await in_child(child) == 0
        for _ in range(3):
            (await anext(consumer)).ack()
        await consumer.flush()

    assert [join.topics for join in broker.joins] == [["orders"], ["other"]]
    assert sum(done.end - done.first for done in broker.done) == 3


def _send_in_pool(url: str, count: int) -> list[str]:
    async def send() -> list[str]:
        async with ternmq.connect(url) as mq:
            receipts = await asyncio.gather(*(mq.send("orders", b"x") for _ in range(count)))
            return [receipt.id for receipt in receipts]

    return asyncio.run(send())


async def test_a_pool_of_forked_workers_makes_no_id_twice(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    """As Gunicorn and Celery prefork do it."""
    await mq.send("orders", b"before")
    with multiprocessing.get_context("fork").Pool(4) as pool:
        results = pool.starmap_async(_send_in_pool, [(broker.url, 50)] * 4)
        await until(results.ready, seconds=30)
    ids = [each for result in results.get() for each in result]

    assert len(set(ids)) == 200
