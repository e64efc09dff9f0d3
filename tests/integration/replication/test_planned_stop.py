"""A broker that is stopped on purpose: clients are told, finish, come back; no errors."""

import asyncio
import time
from pathlib import Path

import ternmq
from ternmq import testing
from tests.integration.processes import Node
from tests.waiting import until


async def test_what_was_done_and_what_was_not_begun_is_told_before_the_broker_stops(
    tmp_path: Path,
) -> None:
    """D4, D5: what a consumer has acked stays acked, what it only fetched is free for others."""
    async with testing.node(data_dir=tmp_path) as url:
        mq = await ternmq.connect(url, app="shop", request_timeout=1)
        await mq.send_many("orders", [b"x"] * 100)
        consumer = await mq.consumer("orders", group="g", prefetch=100).start()
        for _ in range(10):
            (await anext(consumer)).ack()  # Told within 200 ms, if there is time.
        in_hand = await anext(consumer)
    in_hand.ack()
    fetched = asyncio.create_task(anext(consumer))
    await asyncio.sleep(0)
    assert not fetched.done()
    fetched.cancel()
    await mq.close()

    async with testing.node(data_dir=tmp_path) as url, ternmq.connect(url, app="shop") as mq:
        [line] = await mq.admin.ledger("orders", "g")
        assert (line.acked, line.ready) == (10, 90)


async def test_two_consumers_a_sender_a_broadcast_and_a_slow_handler_see_no_error(
    node: Node,
) -> None:
    """D4: clients move away and come back; nothing is lost."""
    handled: list[int] = []
    attempts: list[int] = []
    app = ternmq.App(node.url, app="slow")

    @app.subscriber("slow", group="g")
    def slow(message: ternmq.Message) -> None:
        attempts.append(message.attempt)
        time.sleep(2.0)

    async with ternmq.connect(node.url, app="shop") as mq, app:
        await mq.send("slow", b"x")
        await mq.send("orders", b"0")

        async def consume() -> None:
            async with mq.consumer("orders", group="g", prefetch=20) as consumer:
                async for message in consumer:
                    handled.append(int(message.body))
                    message.ack()

        async def listen() -> None:
            async with mq.broadcast("orders") as every:
                async for _ in every:
                    pass

        async def send() -> int:
            for number in range(1, 300):
                await mq.send("orders", str(number).encode())
            return 300

        tasks = [asyncio.create_task(work()) for work in (consume, consume, listen)]
        sending = asyncio.create_task(send())
        await until(lambda: len(handled) >= 50)
        await asyncio.to_thread(node.restart)
        sent = await asyncio.wait_for(sending, 30)
        await until(lambda: len(set(handled)) >= sent)

        async def slow_one_acked() -> bool:
            return bool((await mq.admin.ledger("slow", "g"))[0].acked)

        await until(slow_one_acked)
        for task in tasks:
            assert not task.done(), task
            task.cancel()
        await asyncio.wait(tasks)
    assert set(handled) == set(range(sent))  # Repeats only where half a second was too short.
    assert attempts == [1]
