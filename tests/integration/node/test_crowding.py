"""One client does not stop the others: findings H3, H4, M1 of the security assessment."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import ternmq
from ternmq.core.errors import OverLimit
from ternmq.rpc.connection import Connection, request
from ternmq.wire.messages.groups import GroupCreate, GroupFind, Groups, Start
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello
from ternmq.wire.messages.pull import Join
from ternmq.wire.messages.servers import Routes, RoutesFind
from ternmq.wire.messages.topics import Topic, TopicCreate
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack, unpack
from tests.integration.processes import Node, NodeFactory
from tests.waiting import until

WAIT = 30.0
HELLO = Hello(protocol=PROTOCOL_VERSION, app="eve", version="0", session=b"e" * 16)


class Crowd:
    """Connections that are closed at the end."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._open: list[Connection] = []

    async def connect(self, above: int = 0) -> Connection:
        address = f"127.0.0.1:{self._node.port + above}"
        connection = await Connection.open(address, HELLO, timeout=WAIT)
        self._open.append(connection)
        return connection

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self._open))


@pytest.fixture
async def crowd(node: Node) -> AsyncIterator[Crowd]:
    made = Crowd(node)
    yield made
    await made.close()


async def test_a_crowd_that_waits_at_meta_keeps_nobody_else_waiting(crowd: Crowd) -> None:
    """H4: 20 connections with 4,000 questions each held more than the bound of all clients."""
    first = await crowd.connect()
    known = (await request(first, Command.ROUTES, RoutesFind(), Routes, timeout=WAIT)).version
    question = pack(RoutesFind(known=known, wait_ms=30_000))
    waiting = []
    for _ in range(20):
        eve = await crowd.connect()
        waiting += [eve.call(Command.ROUTES, question) for _ in range(4_000)]
        await eve.call(Command.PING)
    victim = await crowd.connect()
    for name in ("one", "two", "three"):
        await request(victim, Command.TOPIC_CREATE, TopicCreate(name=name), Topic, timeout=WAIT)

    refused = [each for each in waiting if each.done()]
    assert len(refused) == 20 * 3_999, "one waits for each connection"
    assert isinstance(refused[0].exception(), OverLimit)
    assert not any(each.done() for each in waiting[::4_000])


async def test_long_lists_and_filters_leave_the_loop_to_others(crowd: Crowd) -> None:
    """H3: forty lists of all groups, or many filters, stopped the loop for seconds."""
    eve, victim = await crowd.connect(1), await crowd.connect(1)
    making = [
        eve.call(
            Command.GROUP_CREATE,
            pack(GroupCreate(topic="t", group=f"g{number}", start=Start(at="earliest"))),
        )
        for number in range(1_500)
    ]
    await asyncio.gather(*making)
    lists = [eve.call(Command.GROUP_LIST, pack(GroupFind())) for _ in range(40)]
    await victim.call(Command.PING)
    assert not all(each.done() for each in lists)
    assert len(unpack(await lists[-1], Groups).groups) == 1_500

    joins = [
        eve.call(
            Command.JOIN,
            pack(
                Join(
                    group=f"f{number}",
                    topics=["t"],
                    start=Start(at="earliest"),
                    filter=" or ".join(f"amount > {number}{term}" for term in range(100)),
                )
            ),
        )
        for number in range(100)
    ]
    await victim.call(Command.PING)
    assert not all(each.done() for each in joins)
    await asyncio.gather(*joins)


@pytest.fixture
def small(node_factory: NodeFactory) -> Node:
    return node_factory(
        environment={
            "TERN_TOPICS_MAX": "4",
            "TERN_GROUPS_MAX": "2",
            "TERN_CONNECTIONS_PER_ADDRESS_MAX": "6",
        }
    )


async def test_what_there_may_be_is_bounded_and_the_refusal_says_by_what(small: Node) -> None:
    """M1: topics, groups and connections of one client had no bound."""
    async with ternmq.connect(small.url, app="shop") as mq:
        for number in range(4):
            await mq.admin.create_topic(f"t{number}")
        with pytest.raises(OverLimit, match=r"topics_max is 4.*tern topic delete"):
            await mq.admin.create_topic("t4")
        await mq.admin.create_topic("t3")  # There already.
        for group in ("one", "two"):
            await mq.admin.create_group("t0", group, Start(at="earliest"))
        with pytest.raises(OverLimit, match=r"groups_max is 2.*tern group delete"):
            await mq.admin.create_group("t0", "three", Start(at="earliest"))
        await mq.admin.delete_group("t0", "one")
        await mq.admin.create_group("t0", "three", Start(at="earliest"))
        await mq.send("t0", b"1")  # What is there goes on, dead letters included.
        async with mq.consumer("t0", group="two", start="earliest") as consumer:
            async for message in consumer:
                await message.reject("no")
                break


async def test_one_address_does_not_take_every_connection(small: Node) -> None:
    crowd = Crowd(small)
    first = await crowd.connect(1)
    with pytest.raises(OverLimit, match=r"127.0.0.1 has its 6.*connections_per_address_max"):
        for _ in range(6):
            await crowd.connect(1)
    await first.close()
    await until(lambda: crowd.connect(1), "room, once the server saw it go", ignoring=OverLimit)
    await crowd.close()
