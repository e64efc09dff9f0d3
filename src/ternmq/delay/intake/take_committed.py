"""Takes delayed messages of committed transactions from the brokers, each exactly once.

A transaction with delayed rows (the Spark sink's) stages them on its broker like any others, in the
topic `%later.NAME` of the delay server that it chose. Its commit makes them visible there, together
with everything else of it; this server reads that topic of every broker group and stores the rows
as if they had been sent to it. How far it is stands in its own message log: a topic on a broker
group is a producer whose numbers are the topic's sequences, so that a batch and the position behind
it become safe in one write. One batch is under way at a time, so there is never a gap below it.

What it reads on from tells the broker what may go (`broker.delivery.read`). Never asks whether a
row is due too far ahead, or whether its topic still takes it: that was asked when it was staged.
"""

import asyncio
import hashlib

import numpy as np

from ternmq.batch.envelope import Envelope
from ternmq.batch.layout import BATCH_SIZE_MAX, Column, ColumnPart
from ternmq.batch.readability import reason_of
from ternmq.batch.rows.merge import ChosenRows, adopt
from ternmq.batch.view import BatchView
from ternmq.client.reading.range_reader import ENDLESS, RangeReader
from ternmq.client.transport.attempts import Attempts
from ternmq.client.transport.cluster import Cluster
from ternmq.core.errors import Closed, Corrupt, ProtocolError, TernError, TooLarge
from ternmq.core.ids import RANDOM_BITS, START_BITS, ProducerId
from ternmq.core.log import get_logger
from ternmq.core.units import KIB
from ternmq.delay.intake.accept import Acceptor
from ternmq.delay.store.store import DelayStore
from ternmq.discovery.directory import TopicDirectory
from ternmq.discovery.hidden_topics import later_topic
from ternmq.storage.messages.producers import durable_start
from ternmq.wire.messages.topics import Topic

log = get_logger()

LOOK_S = 0.2  # For the topic, while there is none, and for new broker groups.
WAIT_MS = 10_000
GONE_AFTER = 20
"""Looks at a topic that is not there: it may be new and not known here yet."""
SIZE_FINE = BATCH_SIZE_MAX - 64 * KIB
"""Rows get their ids written out; batches that are larger then are cut."""


def producer_of(topic_id: int, broker_group: str) -> ProducerId:
    """The producer that stands for a topic on a broker group in the message log; never expires."""
    digest = hashlib.blake2b(f"{topic_id} {broker_group}".encode(), digest_size=16).digest()
    start = int.from_bytes(digest[:8], "big") & (2 ** (START_BITS - 1) - 1)
    random = int.from_bytes(digest[8:], "big") & (2**RANDOM_BITS - 1)
    return ProducerId(durable_start(start), random)


class CommittedTaker:
    """One reader for each broker group."""

    def __init__(
        self,
        name: str,
        *,
        cluster: Cluster,
        directory: TopicDirectory,
        acceptor: Acceptor,
        store: DelayStore,
    ) -> None:
        self._topic = later_topic(name)
        self._cluster = cluster
        self._directory = directory
        self._acceptor = acceptor
        self._store = store

    async def run(self) -> None:
        """Follow every broker group there is; nothing is asked before the topic is first used."""
        following: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                for group in await self._groups():
                    if group not in following:
                        following[group] = asyncio.create_task(
                            self._follow(group), name="tern-take"
                        )
                await asyncio.sleep(LOOK_S)
        finally:
            for task in following.values():
                task.cancel()
            if following:
                await asyncio.wait(following.values())

    async def close(self) -> None:
        await self._cluster.close()

    def position(self, producer: ProducerId) -> int:
        """The first sequence that is not safe here."""
        key = (producer.start_ms, producer.random)
        return max(self._store.wal.producers.position(key), self._store.taken.get(key, 0))

    async def _groups(self) -> list[str]:
        if self._directory.topic(self._topic) is None:
            return []
        try:
            return await self._cluster.some_masters()
        except TernError as error:
            log.debug("routes are not refreshed", reason=error.message)
            return []

    async def _follow(self, group: str) -> None:
        attempts = Attempts()
        while True:
            try:
                topic = self._directory.topic(self._topic)
                if topic is not None:
                    await self._take_all(topic, group)
                attempts.worked()
                await asyncio.sleep(LOOK_S)
                continue
            except Closed:
                return
            except TernError as error:
                log.warning(
                    "delayed messages are not taken for now", group=group, reason=error.message
                )
            except Exception as bug:  # The others go on, and the next try may work.
                log.error("taking delayed messages failed by a bug", group=group, error=repr(bug))
            await attempts.wait(at_least=LOOK_S)

    async def _take_all(self, topic: Topic, group: str) -> None:
        """Until the topic is another one, or something fails."""
        producer = producer_of(topic.id, group)
        reader = RangeReader(self._cluster.broker(group), topic.name, wait_ms=WAIT_MS)
        at = self.position(producer)
        while self._directory.topic(self._topic) == topic:
            page = await reader.read(at, ENDLESS)
            for envelope in page.envelopes:
                await self._take(envelope, producer)
            at = max(at, page.following)

    async def _take(self, envelope: Envelope, producer: ProducerId) -> None:
        view = envelope.batch
        topic = await self._topic_of(view)
        for first, end in envelope.selection:
            begin = max(first, self.position(producer) - view.base_sequence)
            if begin >= end:
                continue
            if topic is None:
                log.error("delayed messages are dropped", topic=view.topic, rows=end - begin)
                continue
            try:
                batches = _batches(view, np.arange(begin, end), producer)
            except Exception as problem:  # Of an older release; what is behind it must not wait.
                self._pass_over(view, begin, end, producer, problem)
                continue
            for batch, upto in batches:
                try:
                    await self._acceptor.take(batch, topic, view.stamp)
                except (ProtocolError, TooLarge, Corrupt) as problem:
                    self._pass_over(view, begin, end, producer, problem)
                    break
                self._store.taken[producer.start_ms, producer.random] = upto

    def _pass_over(
        self, view: BatchView, begin: int, end: int, producer: ProducerId, problem: Exception
    ) -> None:
        """Rows that can never be taken stay where they are; what is behind them must not wait."""
        log.error(
            "delayed messages cannot be taken: their batch cannot be read",
            topic=view.topic,
            sequence=view.base_sequence + begin,
            rows=end - begin,
            reason=reason_of(problem),
        )
        self._store.taken[producer.start_ms, producer.random] = view.base_sequence + end

    async def _topic_of(self, view: BatchView) -> Topic | None:
        """What the rows are for; None where it was deleted since, or where there is no due time."""
        if view.buffer(Column.DUE, ColumnPart.VALUES) is None:
            return None
        for _ in range(GONE_AFTER):
            topic = await self._acceptor.topic_of(view.topic)
            if topic is not None:
                return topic
            await asyncio.sleep(LOOK_S)
        return None


def _batches(
    view: BatchView, rows: np.ndarray, producer: ProducerId
) -> list[tuple[bytearray, int]]:
    """Rows that follow each other, with the sequence behind each batch."""
    first = view.base_sequence + int(rows[0])
    batch = adopt(ChosenRows(view, rows), producer=producer, first_sequence=first)
    if len(batch) <= SIZE_FINE or len(rows) == 1:
        return [(batch, first + len(rows))]
    middle = len(rows) // 2
    return [*_batches(view, rows[:middle], producer), *_batches(view, rows[middle:], producer)]
