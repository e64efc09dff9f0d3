"""Copies of stored messages in one group's private lane: replays that no other group sees (J14).

A replay goes through a range of a topic in steps, each asked for by the client, and copies what
passes its filter. The copies keep their ids and say where they lay (`%replayed`). A replay has a
name, which is the producer of its copies; their numbers end with the sequence that was copied last,
so the producer table knows how far it is, also after a restart. What was copied is never copied
again under the same name: a step whose answer was lost, or a whole replay, may be repeated.

Messages that are no longer stored here come from an archive: the client has them, `open` tells it
which topic or lane to publish them to, as which producer, and how far that is. Their numbers end
with the sequence they had, as above; such a producer is remembered without a time limit.
"""

import hashlib
from dataclasses import dataclass, field

from ternmq.batch.encoder import Outgoing
from ternmq.batch.readability import reason_of
from ternmq.batch.selector.filter import Filter, parse_filter
from ternmq.batch.view import BatchView
from ternmq.broker.delivery.consumers import Consumers
from ternmq.broker.delivery.handout import clipped
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.log.fetch import Fetcher
from ternmq.broker.log.internal_producer import InternalProducer, copy_of, split
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import BadRequest, Corrupt, OverLimit, TernError
from ternmq.core.ids import (
    MESSAGE_SEQUENCE_MAX,
    RANDOM_BITS,
    SEQUENCE_BITS,
    START_BITS,
    ProducerId,
    id_from_text,
)
from ternmq.core.log import get_logger
from ternmq.core.units import MIB
from ternmq.rpc.peer import Peer
from ternmq.storage.consume.consume_log import ConsumeLog
from ternmq.storage.consume.entry import ConsumeEntry
from ternmq.storage.messages.producers import ProducerTable, durable_start
from ternmq.wire.messages.read import GroupReplay, GroupReplayed, ReplayOpen, ReplayOpened
from ternmq.wire.messages.topics import Topic

log = get_logger()

STEP_ROWS_MAX = 10_000
STEP_SIZE_MAX = 4 * MIB


@dataclass(slots=True)
class _GroupReplayStep:
    """What one step found."""

    topic: str
    at: int
    stop: int
    wanted: Filter | None
    found: list[tuple[int, Outgoing]] = field(default_factory=list)
    filtered: int = 0
    unreadable: int = 0


class GroupReplays:
    """The GROUP_REPLAY command."""

    def __init__(
        self,
        *,
        topics: TopicNames,
        groups: ConsumerGroups,
        consumers: Consumers,
        consume: ConsumeLog,
        fetcher: Fetcher,
        internal_producer: InternalProducer,
        producers: ProducerTable,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._consume = consume
        self._fetcher = fetcher
        self._internal_producer = internal_producer
        self._producers = producers
        self._running: set[ProducerId] = set()

    async def replay(self, request: GroupReplay) -> GroupReplayed:
        """One step; answered when its copies are safe."""
        topic = self._topics.get(request.topic)
        self._groups.get(topic.id, topic.name, request.into)
        producer = producer_of(request.replay, topic, request.into)
        if producer in self._running:
            raise OverLimit(f"a step of replay {request.replay} is still running; ask again")
        self._running.add(producer)
        try:
            first, end = self._consume.bounds(topic.id)
            done = 0 if request.dry_run else self._position(producer)
            step = _GroupReplayStep(
                topic=topic.name,
                at=max(request.first, first, done),
                stop=min(request.end, end),
                wanted=parse_filter(request.tag, request.filter),
            )
            if step.stop > MESSAGE_SEQUENCE_MAX:
                raise BadRequest(f"messages above {MESSAGE_SEQUENCE_MAX} cannot be replayed")
            if step.at < step.stop:
                await self._gather(topic.id, step, min(max(request.rows_max, 1), STEP_ROWS_MAX))
            if step.found and not request.dry_run:
                lane = await self._consumers.open_lane(topic, request.into)
                await self._internal_producer.store_batches(
                    lane, self._batches(lane, step, producer)
                )
        finally:
            self._running.discard(producer)
        return GroupReplayed(
            next=max(step.at, request.first),
            copied=len(step.found),
            filtered=step.filtered,
            unreadable=step.unreadable,
        )

    async def open(self, peer: Peer, request: ReplayOpen) -> ReplayOpened:
        """Where a replay of messages that the client brings goes, and how far it is."""
        if not request.replay or not request.source:
            raise BadRequest("a replay from an archive needs a name and a source")
        found = self._topics.find(request.topic)
        if found is None and not request.into:
            self._topics.check_auto(request.topic)
            if request.dry_run:
                return ReplayOpened(topic="", start_ms=0, random=0, position=0)
            found = await self._topics.auto_create(request.topic)
        topic = found or self._topics.get(request.topic)
        self._topics.check_app(topic, peer)
        if request.into:
            self._groups.get(topic.id, topic.name, request.into)
        producer = client_producer(request, topic)
        target = topic.name
        if request.dry_run:
            target = ""
        elif request.into:
            target = (await self._consumers.open_lane(topic, request.into)).name
        return ReplayOpened(
            topic=target,
            start_ms=producer.start_ms,
            random=producer.random,
            position=self._position(producer),
        )

    def _position(self, producer: ProducerId) -> int:
        return self._producers.position((producer.start_ms, producer.random))

    def _batches(
        self, lane: Topic, step: _GroupReplayStep, producer: ProducerId
    ) -> list[bytearray]:
        """Numbered so that each batch's last number is the sequence of its last row."""
        messages = [message for _, message in step.found]
        return [
            self._internal_producer.batch(
                lane, messages[first:end], producer, step.found[end - 1][0] + 1 - (end - first)
            )
            for first, end in split(messages)
        ]

    async def _gather(self, topic_id: int, step: _GroupReplayStep, rows_max: int) -> None:
        """Read on from `step.at` and move it, until the rows, the bytes or the end."""
        at, wanted = step.at, rows_max
        entries = self._consume.entries_nowait(
            topic_id, at, rows_max=wanted, size_max=STEP_SIZE_MAX
        )
        if entries is None:
            entries = await self._fetcher.run(
                lambda: self._consume.entries(topic_id, at, rows_max=wanted, size_max=STEP_SIZE_MAX)
            )
        for entry in entries:
            if rows_max <= 0 or step.at >= step.stop:
                break
            base = entry.base_sequence
            step.unreadable += max(0, min(base, step.stop) - step.at)
            step.at = max(step.at, base)
            end = min(base + entry.count, step.stop, step.at + rows_max)
            if end <= step.at:
                break
            rows_max -= end - step.at
            await self._look(entry, step, end)
            step.at = end
        if not entries:
            step.unreadable += step.stop - step.at
            step.at = step.stop

    async def _look(self, entry: ConsumeEntry, step: _GroupReplayStep, end: int) -> None:
        base, rows = entry.base_sequence, end - step.at
        try:
            batches = self._fetcher.now([entry]) or await self._fetcher.later([entry])
            view = BatchView(batches[0])
            passing = step.wanted.rows(view) if step.wanted else [(0, entry.count)]
            chosen = clipped(passing, step.at - base, end - base, rows)
            copies = [
                (base + row, copy_of(view, row, {"%topic": step.topic, "%replayed": base + row}))
                for first, stop in chosen
                for row in range(first, stop)
            ]
        except Exception as error:
            if isinstance(error, TernError) and not isinstance(error, Corrupt):
                raise  # Not lost: another server has them, or a disk does not answer.
            log.error("messages cannot be replayed", sequence=base, reason=reason_of(error))
            step.unreadable += rows
            return
        step.found += copies
        step.filtered += rows - len(copies)


def client_producer(request: ReplayOpen, topic: Topic) -> ProducerId:
    """The producer of messages that a client brings: one for each line of a replay."""
    whole = f"{request.replay} {request.source} {topic.id} {request.into}".encode()
    digest = hashlib.blake2b(whole, digest_size=16).digest()
    start_ms = int.from_bytes(digest[:8], "big") & (2 ** (START_BITS - 1) - 1)
    random = int.from_bytes(digest[8:], "big") & (2**RANDOM_BITS - 1)
    return ProducerId(start_ms=durable_start(start_ms), random=random)


def producer_of(replay: str, topic: Topic, into: str) -> ProducerId:
    """The producer that a replay's name stands for, on this topic and for this group."""
    start_ms = id_from_text(replay) >> (SEQUENCE_BITS + RANDOM_BITS)
    whole = f"{replay.upper()} {topic.id} {into}".encode()
    digest = hashlib.blake2b(whole, digest_size=RANDOM_BITS // 8).digest()
    return ProducerId(start_ms=start_ms, random=int.from_bytes(digest, "big"))
