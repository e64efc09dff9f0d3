"""A whole broker without sockets for the delivery machine: the real parts, driven frame by frame.

Peers are lists of answers, the clock is turned, the disk forgets what was not synced, names live
outside it. A life ends by a power cut or a kill, and the next one opens what is left.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.batch.envelope import read_envelopes
from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.leader import BrokerMember, BrokerParts
from ternmq.broker.role import storage_config
from ternmq.core.errors import TernError
from ternmq.core.ids import ProducerId
from ternmq.discovery.cluster_access import ClusterAccess
from ternmq.discovery.directory import InUse
from ternmq.meta.placement import changed
from ternmq.node.addresses import broker_place
from ternmq.node.config import build
from ternmq.rpc.address import packed_endpoints
from ternmq.storage.store import Store
from ternmq.testing import SimulatedDisk, TurnedClock
from ternmq.wire.frame import Frame
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello
from ternmq.wire.messages.order_keys import PlaceChange, Placed, Placement
from ternmq.wire.messages.publish import PUBLISHED
from ternmq.wire.messages.pull import DELIVERED, Ack, Acked, Done, Join, Joined, Pull
from ternmq.wire.messages.standings import Standing
from ternmq.wire.messages.topics import Topic, TopicSettings
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, pack, unpack
from tests.lone_gate import LoneGate

T = TypeVar("T")
R = TypeVar("R", bound=Record)
TOPIC = "orders"
STEP_S = 30.0  # A step that takes longer hangs.
GRACE_MS = 200
LEASE_MS = 5_000


class Names:
    """A registry that never forgets."""

    def __init__(self) -> None:
        self._topics: dict[str, Topic] = {}
        self._groups: dict[tuple[int, str], int] = {}
        self._epoch = 0
        self._placement: Placement | None = None

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    async def gone_topics(self, ids: Collection[int]) -> frozenset[int]:
        return frozenset()

    def topics(self) -> list[Topic]:
        return list(self._topics.values())

    async def create_topic(self, name: str, settings: TopicSettings) -> Topic:
        made = Topic(id=len(self._topics) + 1, name=name, created_at_ms=0, settings=settings)
        return self._topics.setdefault(name, made)

    def on_topic_deleted(self, callback: Callable[[Topic], None]) -> None:
        pass

    on_topic_changed = on_topic_deleted

    async def delete_topic(self, name: str) -> Topic:
        raise NotImplementedError

    async def group_id(self, topic_id: int, group: str) -> int:
        return self._groups.setdefault((topic_id, group), len(self._groups) + 1)

    async def forget_group(self, topic_id: int, group: str) -> None:
        raise NotImplementedError

    async def new_epoch(self, broker_group: str) -> int:
        self._epoch += 1
        return self._epoch

    async def reserve(self, used: InUse) -> frozenset[int]:
        return frozenset()

    def placement(self) -> Placement | None:
        return self._placement

    async def place(self, wanted: PlaceChange) -> Placed:
        self._placement = changed(self._placement, wanted, [])
        return Placed(placement=self._placement)


class Caller:
    """A connection as the broker's parts see it."""

    def __init__(self, session: bytes) -> None:
        self.hello = Hello(protocol=PROTOCOL_VERSION, app="machine", version="0", session=session)
        self.use = self.rights = None  # No security.
        self.node = None  # No server.
        self.address = self.server_address = ("machine", 1)
        self.endpoints = packed_endpoints(self.address, self.server_address)
        self.closed = False
        self._number = 0
        self._asked: dict[int, asyncio.Future[bytes]] = {}

    def ask(self, parts: BrokerParts, command: Command, payload: bytes) -> "asyncio.Future[bytes]":
        self._number += 1
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[self._number] = answer
        frame = Frame(int(command), 0, self._number, bytearray(payload))
        try:
            parts.router.route(cast(Any, self), frame)
        except TernError as error:
            self.fail(int(command), self._number, error)
        return answer

    def answer(self, command: int, correlation: int, *buffers: Any) -> None:
        waiting = self._asked.pop(correlation)
        if not waiting.done():
            waiting.set_result(b"".join(bytes(buffer) for buffer in buffers))

    def fail(self, command: int, correlation: int, error: TernError) -> None:
        waiting = self._asked.pop(correlation)
        if not waiting.done():
            waiting.set_exception(error)

    def push(self, command: int, payload: bytes) -> None:
        pass

    def hold(self, size: int) -> None:
        pass

    release = rest = hold


@dataclass(frozen=True, slots=True)
class Row:
    """A row in a consumer's hands."""

    lease: int
    sequence: int
    attempt: int
    key: str | None
    body: bytes


@dataclass(slots=True)
class Consumer:
    """A member of a group, and what it believes to hold."""

    group: str
    session: bytes
    peer: Caller
    subscription: int = 0
    held: list[Row] = field(default_factory=list)
    detached: bool = False


class World:
    """Lives of one broker on one disk."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.disk = SimulatedDisk(room=1_000)
        self.clock = TurnedClock()
        self.names = Names()
        self.config = build(
            {"data_dir": Path("/machine"), "ports": 7700},
            {"session_grace_ms": GRACE_MS, "lease_ms": LEASE_MS, "segment_size": 8 * 1024 * 1024},
        )
        self.producer = Caller(b"p" * 16)
        self.number = 0
        self.key = 0
        """Of the last pull, where it was detached."""
        self._parts: BrokerParts | None = None
        self.run(self.open())

    @property
    def parts(self) -> BrokerParts:
        assert self._parts is not None
        return self._parts

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def whole() -> T:
            async with asyncio.timeout(STEP_S):
                return await work

        return self.loop.run_until_complete(whole())

    # -- lives

    async def open(self) -> None:
        epoch = await self.names.new_epoch("b")
        config, place = self.config.broker, broker_place(self.config)
        store = Store.open(
            self.disk,
            place.data_dir / "broker",
            clock=self.clock,
            epoch=epoch,
            config=storage_config(config),
        )
        member = BrokerMember(
            id="",
            place=place,
            gate=LoneGate(),
            listener=cast(Any, None),
            access=ClusterAccess(),
            drainable=SimpleNamespace(standing=Standing(broker_group="b")),
            commands=cast(Any, SimpleNamespace(follow=None, replicated=None, hand_over=None)),
            cold_below=lambda: None,
        )
        self._parts = BrokerParts(config, store, self.names, self.clock, self.disk, member)
        self.names.on_topic_deleted(self.parts.topic_deleted)
        self.names.on_topic_changed(self.parts.admin.topic_changed)
        await self.parts.start(frozenset())
        self.producer = Caller(b"p" * 16)

    async def end(self, seed: int | None) -> None:
        """The power goes (a seed), or the process is killed: what was written stays."""
        if seed is None:
            self.disk.restart()
        else:
            self.disk.crash(seed)
        await self._close()

    async def _close(self) -> None:
        with suppress(TernError):
            await self.parts.close()
            self.parts.store.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
            await asyncio.wait([task])

    def close(self) -> None:
        self.run(self._close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    async def settle(self) -> None:
        """Let everything happen that was begun."""
        await self.parts.router.finish()
        await self.parts.ack_handler.finish()
        await asyncio.sleep(0)

    async def tick(self) -> None:
        now = self.parts.groups.now()
        for group in list(self.parts.groups.due(now)):
            self.parts.timers._tick(group, now)
        await self.settle()

    # -- asking

    async def ask(self, peer: Caller, command: Command, record: Record, kind: type[R]) -> R:
        return unpack(bytearray(await peer.ask(self.parts, command, pack(record))), kind)

    def batch(self, keys: list[str | None]) -> bytes:
        rows = [
            Outgoing(body=b"%d" % (self.number + row), order_key=key, born_at_ms=1)
            for row, key in enumerate(keys)
        ]
        origin = Origin(topic=TOPIC, app="machine", producer=ProducerId(1, 1))
        made = encode_messages(rows, origin=origin, first_sequence=self.number)
        self.number += len(keys)
        return bytes(made)

    async def publish(self, batch: bytes) -> int:
        """The first sequence, once it is safe."""
        answer = await self.producer.ask(self.parts, Command.PUBLISH, batch)
        return int(PUBLISHED.unpack_from(answer)[1])

    async def join(self, consumer: Consumer, *, held: list[int]) -> list[int]:
        join = Join(
            group=consumer.group,
            topics=[TOPIC],
            held=held,
            ordered=consumer.group == "ordered",
            detached=consumer.detached,
        )
        joined = await self.ask(consumer.peer, Command.JOIN, join, Joined)
        consumer.subscription = joined.subscription
        return list(joined.kept)

    async def pull(self, consumer: Consumer, rows_max: int, lease_ms: int = 0) -> list[Row]:
        pull = Pull(
            subscription=consumer.subscription,
            rows_max=rows_max,
            size_max=2**20,
            wait_ms=0,
            lease_ms=lease_ms,
        )
        payload = bytearray(await consumer.peer.ask(self.parts, Command.PULL, pack(pull)))
        count, _, self.key = DELIVERED.unpack_from(payload)
        rows: list[Row] = []
        for envelope in read_envelopes(payload, count, DELIVERED.size):
            view, number = envelope.batch, 0
            for first, end in envelope.selection:
                for row in range(first, end):
                    attempt = envelope.attempts[number] if envelope.attempts else 1
                    number += 1
                    sequence = view.base_sequence + row
                    rows.append(
                        Row(envelope.lease, sequence, attempt, view.order_key(row), view.body(row))
                    )
        return rows

    async def done(self, consumer: Consumer, done: Done) -> int:
        ack = Ack(subscription=consumer.subscription, done=[done])
        answer = await self.ask(consumer.peer, Command.ACK, ack, Acked)
        await self.settle()
        return int(answer.settled)

    def group(self, name: str) -> ConsumerGroup | None:
        topic = self.names.topic(TOPIC)
        return None if topic is None else self.parts.groups.find(topic.id, name)
