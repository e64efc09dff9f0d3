"""Producers, consumers and the judge of a simulated cluster: real clients, each on its machine.

Producers send one after the other, with and without order keys; a key is always sent by one
producer, which waits for the answer before the next of the same key. Consumers ack, retry and
reject at random. The judge waits until every group has nothing left and then reads everything.
All of them write down what they see (`cluster_journal`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

from ternmq.batch.encoder import Outgoing
from ternmq.client.client import Client
from ternmq.client.config import make_config
from ternmq.client.model.message import Message
from ternmq.core.errors import TernError, TopicNotFound
from ternmq.wire.messages.groups import LedgerLine
from tests.simulation.cluster.halves import Halves
from tests.simulation.cluster.journal import Journal, Place, check_ledger, unsettled
from tests.simulation.cluster.later import LATER, Later
from tests.simulation.world.machine import Process

PLAIN, ORDERED = "bookings", "orders"
TOPICS = (PLAIN, ORDERED)
BILLING, SHIPPING = "billing", "shipping"
GROUPS = {BILLING: TOPICS, SHIPPING: (ORDERED,)}
PREFETCH = 40


class Load:
    """What the clients of one run share."""

    def __init__(
        self, url: str, journal: Journal, random: Random, *, interval: float, transactions: bool
    ) -> None:
        self.url = url
        self.journal = journal
        self.random = random
        self.transactions = transactions
        self.later: Later | None = None
        """Where there are delay servers."""
        self._interval = interval
        """Seconds between two sends of one of the four that send, on average."""
        self._sending: dict[str, int] = {}
        self.groups: list[str] = []
        """The broker groups that there are."""
        self._lines: list[LedgerLine] = []
        """Of all groups, when they had nothing left."""
        self.verdict = ""
        self.now: Callable[[], float] = lambda: 0.0

    @asynccontextmanager
    async def client(self, process: Process) -> AsyncIterator[Client]:
        config = make_config({"app": process.machine.name})
        mq = Client(self.url, config, process.machine.clock)
        async with mq:
            yield mq

    @property
    def group_topics(self) -> dict[str, tuple[str, ...]]:
        """Which group consumes what."""
        return GROUPS if self.later is None else GROUPS | {BILLING: (*TOPICS, LATER)}

    # Producers.

    async def produce(self, process: Process) -> None:
        """Until it is over; several sends at a time."""
        self._sending[process.machine.name] = 2
        async with self.client(process) as mq:
            halves = Halves(mq, self.journal, self.random) if self.transactions else None
            async with asyncio.TaskGroup() as tasks:
                for lane in range(2):
                    keys = [f"{process.machine.name}-{lane}-{number}" for number in range(2)]
                    tasks.create_task(self._send_some(mq, keys, halves))
            self._sending[process.machine.name] = 0
            await process.stopping.wait()  # It may still be asked about transactions.

    async def _send_some(self, mq: Client, keys: list[str], halves: Halves | None) -> None:
        chance, journal = self.random, self.journal
        while not journal.over:
            try:
                if halves is not None and chance.random() < 0.3:
                    await halves.send(PLAIN)
                elif self.later is not None and chance.random() < 0.3:
                    await self.later.send(mq)
                else:
                    await self._send(mq, keys)
            except TernError:
                await asyncio.sleep(chance.random())
            if chance.random() < 0.8:
                await asyncio.sleep(chance.expovariate(0.8 / self._interval))

    async def _send(self, mq: Client, keys: list[str]) -> None:
        chance, journal = self.random, self.journal
        if chance.random() < 0.5:
            key = chance.choice(keys)
            body = journal.body(ORDERED, key, chance.randrange(200))
            try:
                receipt = await mq.send(ORDERED, body, order_key=key)
            except TernError as error:
                journal.failed([body], error)
                raise
            journal.told(body, Place(receipt.broker_group, receipt.topic, receipt.sequence))
            return
        bodies = [
            journal.body(PLAIN, None, chance.choice((10, 3000)))
            for _ in range(chance.randrange(1, 12))
        ]
        try:
            receipts = await mq.send_many(PLAIN, [Outgoing(body=body) for body in bodies])
        except TernError as error:
            journal.failed(bodies, error)
            raise
        failed = {row: error for rows, error in receipts.failures for row in rows}
        for row, body in enumerate(bodies):
            if row in failed:
                journal.failed([body], failed[row])
            else:
                one = receipts[row]
                journal.told(body, Place(one.broker_group, one.topic, one.sequence))

    # Consumers.

    def consume(self, group: str) -> "Consume":
        return Consume(self, group)

    # The judge.

    async def judge(self, process: Process) -> None:
        """Waits until the groups have nothing left, then reads everything."""
        while not self.journal.over:  # noqa: ASYNC110
            await asyncio.sleep(1)
        while True:
            try:
                async with self.client(process) as mq:
                    await self._wait_for_delayed(mq)
                    await self._wait_until_settled(mq)
                    if await self._read_everything(mq):
                        self.verdict = "ok"
                        break
            except TernError as error:
                self.verdict = repr(error)
                await asyncio.sleep(0.5)
        await process.stopping.wait()

    async def _wait_for_delayed(self, mq: Client) -> None:
        """Until all that is due one day has come."""
        while self.later is not None:
            waiting = await mq.admin.delays.rows(limit=1)
            found = [
                body
                for broker_group in self.groups
                for _, body in await self._read(mq, broker_group, LATER)
            ]
            missing = self.journal.missing(found)
            sending = sum(self._sending.values())
            self.verdict = f"delayed: {len(waiting)} wait, {len(missing)} have not come"
            await asyncio.sleep(1)
            if not waiting and not missing and not sending:
                return

    async def _wait_until_settled(self, mq: Client) -> None:
        while True:
            sent_meanwhile = sum(self._sending.values())
            known = sorted(
                {
                    route.broker_group
                    for route in await mq.admin.routes()
                    if route.role == "master" and route.kind == "realtime"
                }
            )
            self.verdict = f"on the routes: {known}"
            if known != self.groups:
                await asyncio.sleep(1)
                continue
            lines = await mq.admin.ledger()
            for line in lines:
                check_ledger(line)
            left = [f"{line.group} {line.topic} {unsettled(line)}" for line in lines]
            halves = sum(line.open + line.dropped for line in await mq.admin.half_lines())
            if halves:
                self.verdict = f"half messages: {halves}"
                await asyncio.sleep(1)
                continue
            self.verdict = f"left: {left}"
            if not sent_meanwhile and self._is_settled(lines):
                return
            await asyncio.sleep(1)

    def _is_settled(self, lines: list[LedgerLine]) -> bool:
        """Every lane is there and has nothing left. A registry that was emptied leaves lanes of
        forgotten topics, under the name of now; nobody consumes those."""
        left: dict[tuple[str, str, str], list[int]] = {
            (broker_group, group, topic): []
            for broker_group in self.groups
            for group, topics in self.group_topics.items()
            for topic in topics
        }
        for line in lines:
            key = (line.broker_group, line.group, line.topic)
            if not self.journal.replaced() or key in left:
                left.setdefault(key, []).append(unsettled(line))
        if self.journal.replaced():
            return all(each and min(each) == 0 for each in left.values())
        self._lines = lines
        return all(each and not any(each) for each in left.values())

    async def _read_everything(self, mq: Client) -> bool:
        """False: not yet. Of a group that a registry has forgotten there are two with its name,
        and the ledger does not say which of them is meant."""
        journal = self.journal
        found: list[tuple[Place, bytes]] = []
        for topic in self.group_topics[BILLING]:
            for broker_group in self.groups:
                found += await self._read(mq, broker_group, topic)
        journal.check_log(found)
        for group, topics in self.group_topics.items():
            dead = [
                body
                for broker_group in self.groups
                for _, body in await self._read(mq, broker_group, f"%dead.{group}")
            ]
            bodies = {body for place, body in found if place.topic in topics}
            if journal.replaced() and bodies - journal.acked[group] - journal.rejecting[group]:
                self.verdict = f"{group} has not settled everything"
                await asyncio.sleep(1)
                return False
            journal.check_group(group, bodies, dead)
            if journal.expires and not journal.replaced():
                journal.check_expired(group, topics, bodies, self._lines)
        journal.check_repeats()
        return True

    async def _read(self, mq: Client, broker_group: str, topic: str) -> list[tuple[Place, bytes]]:
        try:
            return [
                (Place(broker_group, topic, message.sequence), message.body)
                async for message in mq.read(topic, broker_group=broker_group)
            ]
        except TopicNotFound:
            return []  # Nothing was sent to it, or nothing was rejected.


class Consume:
    """One consumer of one group."""

    def __init__(self, load: Load, group: str) -> None:
        self._load = load
        self._group = group
        self._ordered = group == SHIPPING

    async def __call__(self, process: Process) -> None:
        load = self._load
        who = f"{process.machine.name}, start {process.machine.starts}"
        async with load.client(process) as mq:
            topics = list(load.group_topics[self._group])
            async with mq.consumer(
                topics, group=self._group, prefetch=PREFETCH, ordered=self._ordered
            ) as consumer:
                async for message in consumer:
                    body = load.journal.shown(
                        who, self._group, message, ordered=self._ordered, now=load.now()
                    )
                    if load.random.random() < 0.1:
                        slow = 3.0 if load.journal.expires else 0.2
                        await asyncio.sleep(load.random.random() * slow)
                    await self._settle(message, body)

    async def _settle(self, message: Message, body: bytes) -> None:
        journal, chance = self._load.journal, self._load.random.random()
        if chance < 0.08:
            journal.asked_again[self._group][body] += 1
            message.retry(after=0.05)
        elif chance < 0.1 and not self._ordered:
            journal.rejecting[self._group].add(body)
            seen = journal.deliveries[self._group][body]
            try:
                await message.reject("no")
                # Unless somebody else had it too, and was first.
                elsewhere = journal.deliveries[self._group][body] != seen
                if not elsewhere and body not in journal.acked[self._group]:
                    journal.rejected[self._group].add(body)
            except TernError:
                journal.asked_again[self._group][body] += 1
        else:
            journal.acked[self._group].add(body)
            message.ack()
