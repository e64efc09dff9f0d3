"""A small broker for tests: one process, real sockets, the real wire, scripted behaviour.

Meta and broker in one handler. Stores batches in memory, hands each out once per group, keeps what
it was told. `behave` lets a test answer a command in its own way.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ternmq.batch.envelope import WHOLE, pack_envelope
from ternmq.batch.layout import Stamp, read_producer_header, stamp
from ternmq.batch.view import BatchView
from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadRequest, TernError
from ternmq.core.slots import SLOTS
from ternmq.rpc.limits import ServerLimits
from ternmq.rpc.node_proof import NodeGate
from ternmq.rpc.server import Listener, Peer, listening
from ternmq.wire.frame import Frame
from ternmq.wire.messages.delays import DelayChange, DelayChanged
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Empty, Hello, Welcome
from ternmq.wire.messages.order_keys import Placed, Placement
from ternmq.wire.messages.publish import PUBLISHED, PUBLISHED_DUPLICATE, FoundPlaces
from ternmq.wire.messages.pull import (
    DELIVERED,
    Ack,
    Acked,
    Done,
    Join,
    Joined,
    Leave,
    Pull,
    Renew,
    Renewed,
)
from ternmq.wire.messages.read import Read, Seek, Sought
from ternmq.wire.messages.servers import Route, Routes
from ternmq.wire.messages.topics import Topic, Topics
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, pack, unpack
from tests.node_greeting import SECRET

Behaviour = Callable[[Peer, Frame], bool]
"""Called before the usual answer; True when it has dealt with the frame."""


@dataclass(slots=True)
class Waiting:
    peer: Peer
    frame: Frame
    pull: Pull


@dataclass(slots=True)
class FakeBroker:
    """What it was sent, and what it answers."""

    batches: dict[str, list[bytearray]] = field(default_factory=dict)
    published: list[bytes] = field(default_factory=list)
    """Every PUBLISH payload that arrived, in order, repeats included."""
    hellos: list[Hello] = field(default_factory=list)
    joins: list[Join] = field(default_factory=list)
    pulls: list[Pull] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    renewals: list[Renew] = field(default_factory=list)
    left: int = 0
    epoch: int = 1
    lease_ms: int = 60_000
    keeps: bool = True
    """Whether leases survive a reconnect."""
    lost_leases: list[int] = field(default_factory=list)
    known_group: bool = False
    announced: bool = True
    """Whether the routes name this broker."""
    delay_groups: list[str] = field(default_factory=list)
    """As which delay servers the routes name it besides."""
    body_sizes: dict[str, int] = field(default_factory=dict)
    away_groups: list[str] = field(default_factory=list)
    changes: list[DelayChange] = field(default_factory=list)
    slot_groups: list[str] = field(default_factory=lambda: ["main"])
    placement: Placement | None = None
    refusal: TernError | None = None
    """What newcomers are told instead of welcome."""
    behaviours: dict[int, Behaviour] = field(default_factory=dict)
    listener: Listener | None = None
    _stored: dict[tuple[int, int, int], bytes] = field(default_factory=dict)
    _ends: dict[str, int] = field(default_factory=dict)
    _handed_out: dict[str, int] = field(default_factory=dict)
    _waiting: list[Waiting] = field(default_factory=list)
    _lease: int = 0

    @property
    def url(self) -> str:
        return f"tern://{self.address}"

    @property
    def address(self) -> str:
        assert self.listener is not None
        return f"127.0.0.1:{self.listener.address[1]}"

    def behave(self, command: int, behaviour: Behaviour) -> None:
        self.behaviours[command] = behaviour

    def refuse(self, command: int, error: TernError, times: int = 10**9) -> None:
        """Answer the next requests with an error."""
        left = times

        def refuse(peer: Peer, frame: Frame) -> bool:
            nonlocal left
            if left == 0:
                return False
            left -= 1
            peer.fail(frame.command, frame.correlation, error)
            return True

        self.behave(command, refuse)

    def cut_all(self) -> None:
        """Drop every connection."""
        assert self.listener is not None
        for peer in list(self.listener.peers):
            peer.abort()

    # Handler

    def welcome(self, peer: Peer, hello: Hello) -> Welcome:
        self.hellos.append(hello)
        if self.refusal is not None:
            raise self.refusal
        return Welcome(
            protocol=PROTOCOL_VERSION,
            version="0",
            role="broker",
            node="fake",
            broker_group="" if self.delay_groups else "main",
            epoch=self.epoch,
        )

    def lost(self, peer: Peer) -> None:
        self._waiting = [waiting for waiting in self._waiting if waiting.peer is not peer]

    def frame(self, peer: Peer, frame: Frame) -> None:
        if frame.command == Command.PUBLISH:
            self.published.append(bytes(frame.payload))
        behaviour = self.behaviours.get(frame.command)
        if behaviour is not None and behaviour(peer, frame):
            return
        answer = self._answer(peer, frame)
        if answer is not None:
            peer.answer(frame.command, frame.correlation, answer)

    def _answer(self, peer: Peer, frame: Frame) -> bytes | None:
        payload = frame.payload
        match frame.command:
            case Command.PUBLISH:
                return self.store(payload)
            case Command.PULL:
                return self._pull(peer, frame, unpack(payload, Pull))
            case Command.READ:
                return self._read(unpack(payload, Read))
            case _:
                return pack(self._control(frame))

    def _control(self, frame: Frame) -> Record:
        payload = frame.payload
        match frame.command:
            case Command.ROUTES:
                routes = [Route(broker_group="main", address=self.address)] * self.announced
                routes += [
                    Route(broker_group=group, address=self.address, kind="delay")
                    for group in self.delay_groups
                ]
                away = [
                    Route(broker_group=group, address="gone:1", kind="delay")
                    for group in self.away_groups
                ]
                return Routes(
                    version=1,
                    servers=routes,
                    away=away,
                    placement=self.placement,
                    body_sizes=self.body_sizes,
                )
            case Command.PLACE:
                groups = self.slot_groups
                owners = [slot % len(groups) for slot in range(SLOTS)]
                self.placement = Placement(version=1, groups=groups, owners=owners)
                return Placed(placement=self.placement)
            case Command.DELAY_CHANGE:
                self.changes.append(unpack(payload, DelayChange))
                return DelayChanged(result="cancelled")
            case Command.TOPIC_LIST:
                return Topics(topics=[topic(name) for name in self.batches])
            case Command.JOIN:
                join = unpack(payload, Join)
                self.joins.append(join)
                return Joined(
                    subscription=len(self.joins),
                    topics=[topic(name) for name in join.topics],
                    new=[not self.known_group] * len(join.topics),
                    kept=join.held if self.keeps else [],
                    lease_ms=self.lease_ms,
                )
            case Command.ACK:
                done = unpack(payload, Ack).done
                self.done += done
                return Acked(settled=sum(each.end - each.first for each in done), late=0)
            case Command.RENEW:
                renew = unpack(payload, Renew)
                self.renewals.append(renew)
                return Renewed(lost=[each for each in renew.leases if each in self.lost_leases])
            case Command.LEAVE:
                unpack(payload, Leave)
                self.left += 1
                return Empty()
            case Command.FIND:
                return FoundPlaces(places=[])
            case Command.SEEK:
                seek = unpack(payload, Seek)
                end = self._ends.get(seek.topic, 0)
                at = {"earliest": 0, "latest": end}.get(seek.start.at, seek.start.value)
                return Sought(sequence=at, first=0, end=end)
        raise BadRequest(f"the fake broker does not do {Command(frame.command).name}")

    def store(self, payload: bytearray) -> bytes:
        """Stamp and keep a batch; recognise repeats."""
        header = read_producer_header(payload)
        producer = (header.producer_start, header.producer_random, header.first_sequence)
        before = self._stored.get(producer)
        if before is not None:
            return before
        name = BatchView(payload).topic
        base = self._ends.get(name, 0)
        stamp(
            payload,
            Stamp(
                offset=0,
                topic_id=1,
                base_sequence=base,
                epoch=1,
                stored_at_ms=1_700_000_000_000,
                received_at_ms=1_700_000_000_000,
                durable_to=0,
            ),
        )
        self._ends[name] = base + header.count
        self.batches.setdefault(name, []).append(payload)
        fields = (1, base, 1_700_000_000_000, header.count)
        self._stored[producer] = PUBLISHED.pack(*fields, PUBLISHED_DUPLICATE)
        self._loosen(name)
        return PUBLISHED.pack(*fields, 0)

    def redeliver(self, name: str) -> None:
        """Hand the topic out again, from its first batch on."""
        self._handed_out[name] = 0
        self._loosen(name)

    def _pull(self, peer: Peer, frame: Frame, pull: Pull) -> bytes | None:
        self.pulls.append(pull)
        self.done += pull.done
        answer = self._next_batch(self.joins[pull.subscription - 1].topics)
        if answer is None:
            self._waiting.append(Waiting(peer, frame, pull))
        return answer

    def _loosen(self, name: str) -> None:
        for waiting in list(self._waiting):
            topics = self.joins[waiting.pull.subscription - 1].topics
            answer = self._next_batch(topics) if name in topics else None
            if answer is not None:
                self._waiting.remove(waiting)
                waiting.peer.answer(waiting.frame.command, waiting.frame.correlation, answer)

    def _next_batch(self, topics: list[str]) -> bytes | None:
        for name in topics:
            at = self._handed_out.get(name, 0)
            if at < len(self.batches.get(name, [])):
                self._handed_out[name] = at + 1
                self._lease += 1
                return DELIVERED.pack(1, 0, 0) + envelope(self.batches[name][at], self._lease)
        return None

    def _read(self, read: Read) -> bytes:
        for batch in self.batches.get(read.topic, []):
            view = BatchView(batch)
            if view.base_sequence <= read.sequence < view.base_sequence + view.count:
                first = read.sequence - view.base_sequence
                end = min(view.count, (read.end or 2**63) - view.base_sequence)
                following = view.base_sequence + end
                return DELIVERED.pack(1, 0, following) + envelope(batch, 0, first, end)
        return DELIVERED.pack(0, 0, read.sequence)


def envelope(batch: bytearray, lease: int, first: int = 0, end: int | None = None) -> bytes:
    count = BatchView(batch).count if end is None else end
    head = pack_envelope(
        lease=lease,
        lane=1,
        selection=[(first, count)],
        attempts=[],
        batch_size=len(batch),
        flags=WHOLE,
    )
    return head + bytes(batch)


def topic(name: str) -> Topic:
    return Topic(id=1, name=name, created_at_ms=0)


@asynccontextmanager
async def fake_broker() -> AsyncIterator[FakeBroker]:
    """A fake broker that listens while the block runs."""
    broker = FakeBroker()
    limits = ServerLimits(linger=0.1)
    clock = SystemClock()
    gate = NodeGate(SECRET, "broker", "main", now=clock.monotonic)
    async with listening("127.0.0.1", 0, broker, limits=limits, clock=clock, gate=gate) as listener:
        broker.listener = listener
        yield broker
