"""A line to a broker group: repeats until answered, and what refusals mean (Q8, D12)."""

from collections.abc import AsyncIterator

import numpy as np
import pytest

from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.core.errors import DiskFull, Paused, ReadOnly, SequenceTooOld, TernError
from ternmq.core.ids import ProducerId
from ternmq.delay.dispatching import broker_senders as brokers_module
from ternmq.delay.dispatching.broker_senders import BrokerSender, BrokerSenders
from ternmq.delay.formats.decision import Decision, DecisionKind
from ternmq.discovery.cluster_access import ClusterAccess
from ternmq.rpc.server import Peer
from ternmq.testing import TurnedClock
from ternmq.wire.frame import Frame
from ternmq.wire.numbers import Command
from tests.node_greeting import greeting
from tests.unit.client.fake_broker import FakeBroker, fake_broker
from tests.waiting import until

Told = list[tuple[int, TernError | None]]


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with fake_broker() as made:
        yield made


@pytest.fixture
async def line(broker: FakeBroker, clock: TurnedClock) -> AsyncIterator[BrokerSender]:
    brokers = BrokerSenders(
        ClusterAccess(url=broker.url, credential=greeting("later", "delay").credential), clock=clock
    )
    await brokers._cluster.refresh()
    made = brokers.to("main")
    await made.probe()
    yield made
    await brokers.close()


@pytest.fixture
def clock() -> TurnedClock:
    return TurnedClock()


def send(line: BrokerSender, number: int, told: Told, *, again: bool = False) -> None:
    """One batch with its intent."""
    producer, first = line.producer, line.numbers(1)
    origin = Origin(topic="t", app="%delay", producer=producer)
    batch = encode_messages([Outgoing(body=b"%d" % number)], origin=origin, first_sequence=first)
    intent = Decision(
        kind=DecisionKind.INTENT,
        at_ms=0,
        rows=np.array([number], np.uint32),
        first_sequence=first,
        producer=(producer.start_ms, producer.random),
        group="main",
    )

    def on_end(_: int, intent: Decision, error: TernError | None) -> None:
        told.append((int(intent.rows[0]), error))

    line.send(0, intent, batch, on_end, again=again)


async def test_a_lost_answer_is_asked_for_again_with_the_same_bytes(
    broker: FakeBroker, line: BrokerSender
) -> None:
    lost = 2

    def lose(peer: Peer, frame: Frame) -> bool:
        nonlocal lost
        lost -= 1
        if lost < 0:
            return False
        broker.store(frame.payload)
        peer.abort()
        return True

    broker.behave(Command.PUBLISH, lose)
    told: Told = []
    send(line, 1, told)
    await until(lambda: len(told) == 1, seconds=30)

    assert told == [(1, None)]
    assert len(broker.published) == 3
    assert len(set(broker.published)) == 1
    assert len(broker.batches["t"]) == 1


async def test_a_refusal_on_the_first_try_gives_the_rows_back(
    broker: FakeBroker, line: BrokerSender
) -> None:
    broker.refuse(Command.PUBLISH, Paused("sending is paused"), times=1)
    told: Told = []
    send(line, 1, told)
    await until(lambda: len(told) == 1, seconds=30)

    assert isinstance(told[0][1], Paused)
    assert line.has_room, "the topic rests, not the group"


async def test_a_group_that_cannot_store_is_left_alone_for_a_while(
    broker: FakeBroker, line: BrokerSender, clock: TurnedClock
) -> None:
    broker.refuse(Command.PUBLISH, DiskFull("no space left"), times=2)
    told: Told = []
    send(line, 1, told)
    await until(lambda: len(told) == 1, seconds=30)
    assert not line.has_room
    clock.turn(0.6)
    assert line.has_room
    send(line, 2, told)
    await until(lambda: len(told) == 2, seconds=30)
    clock.turn(0.6)
    assert not line.has_room, "longer each time"
    clock.turn(0.6)
    send(line, 3, told)
    await until(lambda: len(told) == 3, seconds=30)

    assert [number for number, error in told if error is None] == [3]
    assert line.has_room


async def test_of_an_earlier_life_a_first_refusal_proves_nothing(
    broker: FakeBroker, line: BrokerSender
) -> None:
    """What a killed delay server had sent may arrive after the refusal: a second copy, if the rows
    went elsewhere meanwhile; Q8, seed 50161 of the simulation."""
    broker.refuse(Command.PUBLISH, ReadOnly("replicas do not answer"), times=2)
    told: Told = []
    send(line, 1, told, again=True)
    await until(lambda: len(told) == 1, seconds=30)

    assert told == [(1, None)]
    assert len(set(broker.published)) == 1 and len(broker.batches["t"]) == 1


async def test_after_a_lost_answer_a_refusal_proves_nothing(
    broker: FakeBroker, line: BrokerSender
) -> None:
    """Nor does "too old to know": both would be a second copy elsewhere."""
    tries = 0

    def trouble(peer: Peer, frame: Frame) -> bool:
        nonlocal tries
        tries += 1
        if tries == 1:
            peer.abort()
        elif tries == 2:
            peer.fail(frame.command, frame.correlation, Paused("sending is paused"))
        elif tries == 3:
            peer.fail(frame.command, frame.correlation, SequenceTooOld("who knows"))
        return tries <= 3

    broker.behave(Command.PUBLISH, trouble)
    told: Told = []
    send(line, 1, told)
    await until(lambda: len(told) == 1, seconds=30)

    assert told == [(1, None)]
    assert tries == 4


async def test_a_refused_repeat_does_not_stop_its_line(
    broker: FakeBroker, line: BrokerSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others go on under another producer, whose numbers the broker can remember."""
    monkeypatch.setattr(brokers_module, "AHEAD_MAX", 4)
    first: bytes | None = None
    lost = False

    def stuck(peer: Peer, frame: Frame) -> bool:
        nonlocal first, lost
        payload = bytes(frame.payload)
        first = first or payload
        if payload != first:
            return False
        if not lost:
            lost = True
            peer.abort()
        else:
            peer.fail(frame.command, frame.correlation, Paused("sending is paused"))
        return True

    broker.behave(Command.PUBLISH, stuck)
    told: Told = []
    before = line.producer
    send(line, 0, told)

    async def has_room() -> bool:
        await line.probe()
        return line.has_room

    for number in range(1, 12):
        if not line.has_room:
            await until(has_room, "room in the line")
        send(line, number, told)
    await until(lambda: len(told) == 11, seconds=30)

    assert sorted(told) == [(number, None) for number in range(1, 12)]
    assert line.producer != before
    assert isinstance(line.producer, ProducerId)
    assert line.under_way == 1
