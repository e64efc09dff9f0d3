"""A broker group of several processes behind one meta server, for tests of replication."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import ternmq
from ternmq.discovery.routes import RouteCache
from ternmq.rpc.connection import request
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello
from ternmq.wire.messages.standings import Standing, StandingFind, Standings
from ternmq.wire.numbers import Command
from tests.integration.namespaces import Place
from tests.integration.processes import BrokerServer, MetaServer, NodeFactory
from tests.integration.verifiable_clients import Verifier, balanced, whole_topic
from tests.waiting import until, wait_until

GROUP = "pair"
QUICK = {"TERN_SERVER_HEARTBEAT_MS": "300", "TERN_SERVER_DEAD_AFTER_MS": "1500"}
BROKER = {"TERN_REPLICA_TIMEOUT_MS": "1000"}


@dataclass(slots=True)
class Pair:
    """One meta server and the brokers of one group."""

    meta: MetaServer
    brokers: list[BrokerServer] = field(default_factory=list)
    group: str = GROUP

    @property
    def url(self) -> str:
        return self.meta.url

    def standing(self) -> Standing:
        """As the registry has it."""
        return asyncio.run(read_standing(self.url, self.group))

    def broker_of(self, member: str) -> BrokerServer:
        address = next(each.address for each in self.standing().members if each.id == member)
        return next(each for each in self.brokers if f":{each.port + 1}" in address)

    def master(self) -> BrokerServer:
        return self.broker_of(self.standing().master)

    def replica(self) -> BrokerServer:
        master = self.master()
        return next(broker for broker in self.brokers if broker is not master)

    def wait(self, what: str, condition: Callable[[Standing], bool], seconds: float = 20) -> None:
        wait_until(lambda: condition(self.standing()), what, seconds=seconds)

    def wait_served(self, before: BrokerServer) -> None:
        """Another one leads, and clients are told."""
        wait_until(lambda: self.master() is not before, "another master", seconds=20)
        master = self.master()
        wait_until(lambda: "broker leads" in master.stderr_text(), "a master", seconds=20)

    def wait_in_sync(self, count: int) -> None:
        self.wait(f"{count} in sync", lambda standing: len(standing.in_sync) == count)


async def read_standing(url: str, group: str = GROUP) -> Standing:
    hello = Hello(protocol=PROTOCOL_VERSION, app="test", version="0", session=bytes(16))
    cache = RouteCache([url.removeprefix("tern://")], hello)
    try:
        find = StandingFind(broker_group=group, fresh=True)
        found = await request(
            await cache.connection(), Command.STANDINGS, find, Standings, timeout=5.0
        )
        return found.standings[0] if found.standings else Standing(broker_group=GROUP)
    finally:
        await cache.close()


def make_pair(
    nodes: NodeFactory,
    folder: Path,
    *,
    count: int = 2,
    settings: Mapping[str, str] | None = None,
    places: Sequence[Place] = (),
    meta: Mapping[str, str] = QUICK,
) -> Pair:
    """Running, everybody in sync; the meta server in the first of the places."""
    registry = f"sqlite:///{folder}/registry.db"
    where = iter(places)
    pair = Pair(nodes.meta_server(registry, environment=meta, place=next(where, None)))
    for _ in range(count):
        environment = {**BROKER, **(settings or {})}
        broker = nodes.broker_server(
            pair.url, GROUP, environment=environment, place=next(where, None)
        )
        pair.brokers.append(broker)
    pair.wait_in_sync(count)
    return pair


def add_group(
    nodes: NodeFactory, beside: Pair, group: str, *, settings: Mapping[str, str] | None = None
) -> Pair:
    """One more broker group of two, behind the same meta server."""
    pair = Pair(beside.meta, group=group)
    for _ in range(2):
        environment = {**BROKER, **(settings or {})}
        pair.brokers.append(nodes.broker_server(pair.url, group, environment=environment))
    pair.wait_in_sync(2)
    return pair


async def bodies(mq: ternmq.Client, topic: str) -> list[str]:
    """Everything of a topic; asked again while clients are not told yet who leads."""

    async def read() -> tuple[list[str]]:
        return ([message.body.decode() async for message in mq.read(topic)],)

    [found] = await until(read, "a server that leads", every=0.1, ignoring=ternmq.Unavailable)
    return found


async def more(load: Verifier, *, seconds: float = 30) -> None:
    """Messages go on being stored."""
    before = load.count("stored")
    await until(lambda: load.count("stored") > before + 200, "messages", seconds=seconds)


async def accounted(pair: Pair, load: Verifier, *, seconds: float = 30) -> None:
    """Everything acknowledged is there once and was consumed, in order; the ledgers add up."""
    await asyncio.to_thread(load.end, "produce")
    async with ternmq.connect(pair.url, app="test") as mq:
        found = await whole_topic(mq, "load")
        load.check_stored(found)
        load.check_order(found)
        await until(lambda: len(load.got()) >= len(found), "all consumed", seconds=seconds)
        await asyncio.to_thread(load.end, "consume")
        load.check_consumed(found)
        lines = await mq.admin.ledger()
        assert lines and all(balanced(line) for line in lines)
