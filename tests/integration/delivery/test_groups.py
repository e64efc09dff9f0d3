"""Groups on a real node: sharing a backlog, coming and going, starts that are kept (Q3, Q4, Q5)."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import ternmq
from ternmq.wire.messages.groups import LedgerLine, Start
from tests.integration.processes import Node, NodeFactory
from tests.integration.verifiable_clients import balanced
from tests.waiting import until

BACKLOG = 20_000


async def fill(mq: ternmq.Client, topic: str, count: int, first: int = 0) -> set[str]:
    bodies = [str(number) for number in range(first, first + count)]
    assert not (await mq.send_many(topic, [body.encode() for body in bodies])).failures
    return set(bodies)


async def line_of(mq: ternmq.Client, topic: str, group: str) -> LedgerLine:
    (line,) = await mq.admin.ledger(topic, group)
    assert balanced(line), line
    return line


class Crowd:
    """Consumers of one group, each with a client of its own; all they get is counted and acked."""

    def __init__(self, node: Node, topic: str, group: str) -> None:
        self._node, self._topic, self._group = node, topic, group
        self.got: Counter[str] = Counter()
        self.by: Counter[int] = Counter()
        self._stops: list[asyncio.Event] = []
        self._tasks: list[asyncio.Task[None]] = []

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, count: int) -> None:
        for _ in range(count):
            stop = asyncio.Event()
            self._stops.append(stop)
            self._tasks.append(asyncio.create_task(self._run(len(self._tasks), stop)))

    async def remove(self, count: int) -> None:
        """The first `count` that are still there leave in good order."""
        leaving = [at for at, stop in enumerate(self._stops) if not stop.is_set()][:count]
        for at in leaving:
            self._stops[at].set()
        await asyncio.gather(*(self._tasks[at] for at in leaving))

    async def _run(self, number: int, stop: asyncio.Event) -> None:
        async with (
            ternmq.connect(self._node.url) as mq,
            mq.consumer(self._topic, group=self._group, prefetch=50) as consumer,
        ):
            taking = asyncio.create_task(self._take(number, consumer))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({taking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            taking.cancel()
            stopping.cancel()
            for done in await asyncio.gather(taking, stopping, return_exceptions=True):
                if isinstance(done, Exception):
                    raise done

    async def _take(self, number: int, consumer: ternmq.Consumer) -> None:
        async for message in consumer:
            self.got[message.body.decode()] += 1
            self.by[number] += 1
            message.ack()
            if self.by[number] % 10 == 0:
                await asyncio.sleep(0)

    async def until(self, count: int) -> None:
        """So many messages are here; a consumer that failed fails the test."""

        def reached() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return len(self.got) >= count

        await until(reached, f"{count} messages", seconds=60)


@asynccontextmanager
async def crowd(node: Node, topic: str, group: str) -> AsyncIterator[Crowd]:
    made = Crowd(node, topic, group)
    try:
        yield made
    finally:
        await made.remove(len(made))


async def test_two_consumers_then_ten_then_one_share_a_backlog(shared_node: Node) -> None:
    """Q5, R24: each message at least once, none skipped; in good order also none twice."""
    topic = "two.ten.one"
    async with ternmq.connect(shared_node.url) as mq:
        sent = await fill(mq, topic, BACKLOG)
        async with crowd(shared_node, topic, "g") as consumers:
            consumers.add(2)
            await consumers.until(BACKLOG // 5)
            consumers.add(8)
            await consumers.until(BACKLOG // 2)
            busy = len(consumers.by)
            await consumers.remove(9)
            await consumers.until(BACKLOG)

        assert set(consumers.got) == sent
        assert busy >= 8, "the ones that came later got nothing of the backlog"
        assert consumers.got.total() == BACKLOG
        line = await line_of(mq, topic, "g")
        assert (line.acked, line.in_flight, line.ready) == (BACKLOG, 0, 0)


async def test_a_slow_consumer_holds_only_its_own_leases(shared_node: Node) -> None:
    """Q5, Q13: everybody else goes on with everything else."""
    topic = "slow"
    async with ternmq.connect(shared_node.url) as mq, ternmq.connect(shared_node.url) as other:
        await fill(mq, topic, 1000)
        async with mq.consumer(topic, group="g", prefetch=10) as slow:
            stuck = await anext(slow)
            async with crowd(shared_node, topic, "g") as fast:
                fast.add(2)
                await fast.until(990)
                line = await line_of(other, topic, "g")
                assert 0 < line.in_flight <= 10
                assert line.ready == 0
                stuck.ack()
                await slow.flush()
        line = await line_of(other, topic, "g")
        assert line.acked + line.ready == 1000


async def test_acks_may_come_in_any_order(node: Node) -> None:
    """D11: and what was acked is acked, also for a node that comes back."""
    rng = random.Random(5)
    async with ternmq.connect(node.url) as mq:
        sent = await fill(mq, "any.order", 500)
        async with mq.consumer("any.order", group="g", prefetch=1000) as consumer:
            held = [await anext(consumer) for _ in range(500)]
            rng.shuffle(held)
            for message in held[:400]:
                message.ack()
            await consumer.flush()
            line = await line_of(mq, "any.order", "g")
            assert (line.acked, line.in_flight) == (400, 100)
    node.restart()
    async with ternmq.connect(node.url) as mq:
        assert (await line_of(mq, "any.order", "g")).acked == 400
        rest = sent - {message.body.decode() for message in held[:400]}
        async with crowd(node, "any.order", "g") as consumers:
            consumers.add(1)
            await consumers.until(100)
        assert set(consumers.got) == rest


async def test_leaving_gives_unacked_rows_back_at_once(shared_node: Node) -> None:
    """Q13: no lease time, no grace: the next one has them right away."""
    topic = "leave"
    async with ternmq.connect(shared_node.url) as mq, ternmq.connect(shared_node.url) as other:
        await fill(mq, topic, 100)
        async with other.consumer(topic, group="g") as second:
            async with mq.consumer(topic, group="g", prefetch=100) as first:
                pending = asyncio.create_task(anext(second))
                done, _ = await asyncio.wait({pending}, timeout=0.2)
                held = [] if done else [await anext(first)]
            async with asyncio.timeout(2):  # Well below lease (60 s) and grace (5 s).
                message = await pending
                got = {message.sequence, *[(await anext(second)).sequence for _ in range(99)]}
        assert got == set(range(100))
        assert all(message.sequence in got for message in held)


@pytest.mark.parametrize("how", ["consumer", "command"])
async def test_the_start_of_a_group_is_kept_from_the_first_moment(how: str, node: Node) -> None:
    """Q4, D9: older messages never appear, later ones always do, whenever the node is killed."""
    topic = "starts"
    async with ternmq.connect(node.url) as mq:
        await fill(mq, topic, 50)
        if how == "consumer":
            await mq.consumer(topic, group="g", start="latest").start()
        else:
            await mq.admin.create_group(topic, "g", Start(at="latest"))
        node.kill()
    node.start()
    async with ternmq.connect(node.url) as mq:
        line = await line_of(mq, topic, "g")
        assert (line.start, line.total) == (50, 0)
        sent = await fill(mq, topic, 20, first=50)
        async with crowd(node, topic, "g") as consumers:
            consumers.add(1)
            await consumers.until(20)
        assert set(consumers.got) == sent
        line = await line_of(mq, topic, "g")
        assert (line.acked, line.total) == (20, 20)


async def test_a_group_made_while_producers_send_misses_nothing_after_its_start(
    node_factory: NodeFactory,
) -> None:
    """Q4: its start is one sequence; everything from there on comes."""
    node = node_factory()
    topic = "running"
    stop = asyncio.Event()
    async with ternmq.connect(node.url) as mq:
        await mq.send(topic, b"0")

        async def produce() -> int:
            number = 1
            while not stop.is_set():
                await mq.send(topic, b"%d" % number)
                number += 1
            return number

        producing = asyncio.create_task(produce())
        groups = [f"g{number}" for number in range(20)]
        for group in groups:
            await mq.admin.create_group(topic, group, Start(at="latest"))
        stop.set()
        total = await producing
        lines = await mq.admin.ledger(topic)
        assert len(lines) == 20
        for line in lines:
            assert balanced(line)
            assert line.end == total
            assert line.ready == total - line.start
