"""Consumers against a real node: sharing, leases, retries, reconnects, the app, the facade."""

import asyncio
import itertools
from collections import Counter

import pytest
from structlog.testing import capture_logs

import ternmq
from tests.integration.processes import Node


async def take(consumer: ternmq.Consumer, count: int) -> list[ternmq.Message]:
    async with asyncio.timeout(30):
        return [await anext(consumer) for _ in range(count)]


async def ledger(mq: ternmq.Client, group: str = "billing") -> dict[str, int]:
    [line] = await mq.admin.ledger("orders", group)
    states = {
        name: getattr(line, name)
        for name in ("ready", "in_flight", "waiting_retry", "acked", "skipped", "dead", "expired")
    }
    assert line.total == sum(states.values()) + line.filtered
    return {name: count for name, count in states.items() if count}


async def test_consumers_share_a_backlog(node: Node) -> None:
    """Q5: two consumers, then ten, then one; each message at least once, none skipped."""
    async with ternmq.connect(node.url) as mq:
        await mq.send_many("orders", [b"%d" % at for at in range(30_000)])
        seen: Counter[bytes] = Counter()

        async def consume(stop_at: int) -> None:
            async with mq.consumer("orders", group="billing", prefetch=200) as consumer:
                while len(seen) < stop_at:
                    try:
                        async with asyncio.timeout(0.5):
                            message = await anext(consumer)
                    except TimeoutError:
                        continue
                    seen[message.body] += 1
                    message.ack()

        for members, stop_at in ((2, 10_000), (10, 20_000), (1, 30_000)):
            await asyncio.gather(*(consume(stop_at) for _ in range(members)))
        counts = await ledger(mq)

    assert len(seen) == 30_000
    assert counts == {"acked": 30_000}


async def test_leaving_gives_back_what_was_not_acked(node: Node) -> None:
    async with ternmq.connect(node.url) as mq:
        await mq.send_many("orders", [b"%d" % at for at in range(100)])
        async with mq.consumer("orders", group="billing") as consumer:
            for message in (await take(consumer, 100))[:60]:
                message.ack()
        assert await ledger(mq) == {"acked": 60, "ready": 40}
        async with mq.consumer("orders", group="billing") as consumer:
            rest = await take(consumer, 40)

    assert [message.body for message in rest] == [b"%d" % at for at in range(60, 100)]


async def test_retry_and_reject_in_their_plain_form(node: Node) -> None:
    async with ternmq.connect(node.url) as mq:
        await mq.send_many("orders", [b"fine", b"later", b"never"])
        async with mq.consumer("orders", group="billing") as consumer:
            [fine, later, never] = await take(consumer, 3)
            fine.ack()
            await later.retry(after=0.3, reason="busy")
            await never.reject("no such order")
            assert await ledger(mq) == {"acked": 1, "waiting_retry": 1, "dead": 1}
            [again] = await take(consumer, 1)
            assert (again.body, again.attempt, again.id) == (b"later", 2, later.id)
            await again.ack()
            assert await ledger(mq) == {"acked": 2, "dead": 1}


async def test_a_consumer_goes_on_over_a_kill_of_the_node(node: Node) -> None:
    async with ternmq.connect(node.url) as mq:
        await mq.send_many("orders", [b"%d" % at for at in range(2000)])
        seen: set[bytes] = set()
        async with mq.consumer("orders", group="billing", prefetch=100) as consumer:
            for message in await take(consumer, 50):
                seen.add(message.body)
                message.ack()
            await asyncio.to_thread(node.kill)
            await asyncio.to_thread(node.restart)
            while len(seen) < 2000:
                [message] = await take(consumer, 1)
                seen.add(message.body)
                message.ack()
            await consumer.flush()
        counts = await ledger(mq)

    assert counts == {"acked": 2000}


async def test_a_message_in_hand_over_a_restart_is_not_shown_again(node: Node) -> None:
    """D5: the lease is presented after the reconnect; its ack counts."""
    async with ternmq.connect(node.url) as mq:
        await mq.send_many("orders", [b"%d" % at for at in range(10)])
        async with mq.consumer("orders", group="billing") as consumer:
            [first] = await take(consumer, 1)
            await asyncio.to_thread(node.restart)
            rest = await take(consumer, 9)
            for message in [first, *rest]:
                message.ack()
            await consumer.flush()
        counts = await ledger(mq)

    assert [message.body for message in rest] == [b"%d" % at for at in range(1, 10)]
    assert counts == {"acked": 10}


async def test_groups_do_not_affect_each_other(node: Node) -> None:
    """Q6, R4."""
    async with ternmq.connect(node.url) as mq:
        await mq.send_many("orders", [b"x"] * 100)
        async with (
            mq.consumer("orders", group="billing") as billing,
            mq.consumer("orders", group="audit", start=40) as audit,
        ):
            assert len(await take(billing, 100)) == 100
            assert [message.sequence for message in await take(audit, 60)] == list(range(40, 100))


async def test_batches_by_arrow(node: Node) -> None:
    pytest.importorskip("pyarrow")
    async with ternmq.connect(node.url) as mq:
        await mq.send_many("orders", [b"%d" % at for at in range(1000)])
        bodies: list[bytes] = []
        async with mq.consumer("orders", group="billing") as consumer:
            async for batch in consumer.batches():
                bodies += batch.to_arrow().column("body").to_pylist()
                batch.ack()
                if len(bodies) == 1000:
                    break

    assert bodies == [b"%d" % at for at in range(1000)]


async def test_an_app_handles_and_retries(node: Node) -> None:
    app = ternmq.App(node.url, app="shop", codec="json")
    seen: list[tuple[int, int]] = []
    done = asyncio.Event()

    @app.subscriber(["orders", "refunds"], group="billing", concurrency=8, retry_after=0.2)
    def bill(message: ternmq.Message) -> None:
        seen.append((message.value, message.attempt))
        if message.value == 3 and message.attempt == 1:
            raise ValueError("not today")
        if len(seen) == 11:
            loop.call_soon_threadsafe(done.set)

    loop = asyncio.get_running_loop()
    async with app:
        await app.mq.send_many("orders", list(range(5)))
        await app.mq.send_many("refunds", list(range(5, 10)))
        async with asyncio.timeout(20):
            await done.wait()

    assert sorted(seen) == sorted([(value, 1) for value in range(10)] + [(3, 2)])


def test_the_blocking_facade(node: Node) -> None:
    with ternmq.sync.connect(node.url, app="shop") as mq:
        mq.send("orders", b"first")
        mq.send_many("orders", [b"x"] * 5000)
        with mq.consumer("orders", group="billing") as consumer:
            for message in itertools.islice(consumer, 5001):
                message.ack()
        [line] = mq.admin.ledger("orders", "billing")
        assert line.acked == 5001
        assert sum(1 for _ in mq.read("orders", start=5000)) == 1
        assert [group.name for group in mq.admin.groups("orders")] == ["billing"]
        mq.admin.delete_group("orders", "billing")
        mq.admin.delete_topic("orders")
        assert mq.admin.topics() == []


async def test_a_consumer_makes_its_topic_and_says_so_or_refuses_where_it_is_told_to(
    node: Node,
) -> None:
    async with ternmq.connect(node.url, app="test") as mq:
        await mq.send("orders", b"1")
        with pytest.raises(ternmq.TopicNotFound, match="'order', and create=False"):
            await mq.consumer(["orders", "order"], group="g", create=False).start()
        assert [topic.name for topic in await mq.admin.topics()] == ["orders"]

        with capture_logs() as logs:
            for topic in ("orders", "order"):
                async with mq.consumer(topic, group="g"):
                    pass
        assert [line["topic"] for line in logs if "is the name right?" in line["event"]] == [
            "order"
        ]


async def test_an_ack_after_the_consumer_was_closed_says_what_becomes_of_the_message(
    node: Node,
) -> None:
    async with ternmq.connect(node.url, app="test") as mq:
        await mq.send("orders", b"1")
        async with mq.consumer("orders", group="g") as consumer:
            message = await anext(consumer)
        with pytest.raises(ternmq.Closed, match=r"is closed: what it had not settled.*comes again"):
            await message.ack()
        async with mq.consumer("orders", group="g") as consumer:
            assert (await anext(consumer)).body == b"1"
