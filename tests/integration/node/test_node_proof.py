"""Who is not a server of the cluster cannot act as one: finding C2 of the security assessment.

Every row of its table, on a running node, by a client that knows the protocol and not the secret.
"""

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import ternmq
from ternmq.core.errors import TernError, Unauthorized
from ternmq.rpc.connection import Connection, request
from ternmq.wire.messages.hello import BROKER, DISPATCHER, PROTOCOL_VERSION, Empty, Hello
from ternmq.wire.messages.replication import REPLICATED, BaseOpen, BaseRead, Follow, LogHeld
from ternmq.wire.messages.servers import (
    EpochNew,
    GroupIdFind,
    Register,
    Reserve,
    Route,
    Routes,
    RoutesFind,
    TopicNewsFind,
    Withdraw,
)
from ternmq.wire.messages.standings import (
    InSyncChange,
    InSyncLeave,
    Member,
    MemberJoin,
    Standing,
    StandingFind,
    Standings,
)
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, pack
from tests.integration.processes import SHARED_SECRET, Node, NodeFactory, tern
from tests.node_greeting import greeting, secret_of
from tests.waiting import wait_until

WAIT = 10.0
EVE = Member(id="e" * 16, name="eve", address="127.0.0.1:9")
OF_EVE = Route(broker_group="main", address=EVE.address)


@pytest.fixture
def node(node_factory: NodeFactory) -> Node:
    """With a secret that it made itself."""
    return node_factory(environment={"TERN_NODE_SECRET_FILE": ""})


@pytest.fixture
async def eve(node: Node) -> AsyncIterator["Eve"]:
    made = Eve(node)
    yield made
    await made.close()


class Eve:
    """A client that says what servers say."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._connections: list[Connection] = []

    async def connect(self, above: int = 0, app: str = "eve") -> Connection:
        hello = Hello(protocol=PROTOCOL_VERSION, app=app, version="0", session=b"e" * 16)
        address = f"127.0.0.1:{self._node.port + above}"
        connection = await Connection.open(address, hello, timeout=WAIT)
        self._connections.append(connection)
        return connection

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()


class Truth:
    """What must not change."""

    def __init__(self, standings: list[Standing], routes: list[Route]) -> None:
        self.standings = standings
        self.routes = routes

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Truth)
        return (self.standings, self.routes) == (other.standings, other.routes)


async def truth(meta: Connection) -> Truth:
    found = await request(meta, Command.STANDINGS, StandingFind(), Standings, timeout=WAIT)
    routes = await request(meta, Command.ROUTES, RoutesFind(), Routes, timeout=WAIT)
    return Truth(found.standings, routes.servers)


def meta_attacks(standing: Standing, own: Route) -> list[tuple[Command, Record]]:
    epoch, version, master = standing.epoch, standing.version, standing.master
    return [
        (Command.RESERVE, Reserve(broker_group="main", topic_ids=[2**62], group_id=2**62, epoch=0)),
        (Command.MEMBER_JOIN, MemberJoin(broker_group="main", kind="realtime", member=EVE)),
        (Command.REGISTER, Register(route=OF_EVE, member=EVE.id, epoch=epoch)),
        (Command.REGISTER, Register(route=OF_EVE)),
        (Command.WITHDRAW, Withdraw(route=own, member=master)),
        (Command.WITHDRAW, Withdraw(route=own)),
        (Command.EPOCH, EpochNew(broker_group="main")),
        (
            Command.IN_SYNC_CHANGE,
            InSyncChange(
                broker_group="main",
                kind="realtime",
                epoch=epoch,
                in_sync=[master, EVE.id],
                version=version,
            ),
        ),
        (
            Command.IN_SYNC_LEAVE,
            InSyncLeave(broker_group="main", kind="realtime", member_id=master, epoch_seen=epoch),
        ),
        (Command.TOPIC_NEWS, TopicNewsFind()),
        (Command.GROUP_ID, GroupIdFind(topic_id=1, name="g")),
        (Command.GROUP_FORGET, GroupIdFind(topic_id=1, name="g")),
    ]


async def test_what_servers_ask_of_meta_is_refused_from_others_and_changes_nothing(
    node: Node, eve: Eve
) -> None:
    meta = await eve.connect()
    before = await truth(meta)
    [standing] = [each for each in before.standings if each.kind == "realtime"]
    [own] = [each for each in before.routes if each.kind == "realtime"]

    for command, wanted in meta_attacks(standing, own):
        with pytest.raises(Unauthorized, match="only servers of the cluster"):
            await request(meta, command, wanted, Empty, timeout=WAIT)

    assert await truth(meta) == before
    async with ternmq.connect(node.url, app="shop") as mq:
        await mq.send("orders", b"1")  # Ids are given out, and routes lead to the broker.
        assert [message.body async for message in mq.read("orders")] == [b"1"]


async def test_nobody_follows_a_master_or_ends_its_leadership_by_a_word(
    node: Node, eve: Eve
) -> None:
    meta = await eve.connect()
    before = await truth(meta)
    async with ternmq.connect(node.url, app="shop") as mq:
        await mq.send("orders", b"1")
        for above, group in ((1, "main"), (2, "main")):
            server = await eve.connect(above)
            pushed: list[object] = []
            server.listen(pushed=pushed.append)
            for epoch in (1, 2, 10**6):
                logs = [LogHeld(log=n, start=0, end=0, safe=0, epochs=[]) for n in (0, 1)]
                follow = Follow(broker_group=group, member=EVE.id, epoch=epoch, logs=logs)
                with pytest.raises(Unauthorized):
                    await request(server, Command.FOLLOW, follow, Empty, timeout=WAIT)
            server.send(Command.REPLICATED, REPLICATED.pack(1, 0, 0, 0))
            await mq.send("orders", b"2")
            assert pushed == [], "not a byte of a log"
            assert not server.closed
        delay = await eve.connect(2)
        for command, wanted in (
            (Command.BASE_OPEN, BaseOpen(broker_group="main", member=EVE.id, epoch=1)),
            (Command.BASE_READ, BaseRead(kind="manifest", hour=0, offset=0, size=10)),
        ):
            with pytest.raises(Unauthorized):
                await request(delay, command, wanted, Empty, timeout=WAIT)
        broker = await eve.connect(1)
        with pytest.raises(Unauthorized):
            await broker.call(Command.SLOTS_OPEN, pack(Empty()))
    assert await truth(meta) == before


@pytest.mark.parametrize("app", [BROKER, DISPATCHER, "%", "%eve"])
@pytest.mark.parametrize("above", [0, 1, 2])
async def test_the_names_of_servers_are_not_for_others(
    shared_node: Node, app: str, above: int
) -> None:
    eve = Eve(shared_node)
    with pytest.raises(Unauthorized, match="proves nothing"):
        await eve.connect(above, app)


@pytest.mark.parametrize("app", ["", "a b", "x" * 3_900, "\x1b]0;x", "a\n"])
@pytest.mark.parametrize("above", [0, 1, 2])
async def test_every_server_checks_the_name_of_an_application(
    shared_node: Node, app: str, above: int
) -> None:
    """Finding M2: brokers and delay servers took any."""
    eve = Eve(shared_node)
    with pytest.raises(ternmq.BadName, match="cannot be the name of a application"):
        await eve.connect(above, app)


async def test_a_higher_epoch_makes_a_master_ask_and_not_resign(node: Node) -> None:
    """Even a server of the cluster that is mistaken ends no leadership."""
    secret = secret_of(node.data_dir / "node-secret")
    server = await Connection.open(
        f"127.0.0.1:{node.port + 1}", greeting(secret=secret), timeout=WAIT
    )
    follow = Follow(
        broker_group="main",
        member=EVE.id,
        epoch=server.welcome.epoch + 7,
        logs=[LogHeld(log=n, start=0, end=0, safe=0, epochs=[]) for n in (0, 1)],
    )
    async with ternmq.connect(node.url, app="shop") as mq:
        await mq.send("orders", b"1")
        with pytest.raises(ternmq.NotMaster, match="leads epoch"):
            await request(server, Command.FOLLOW, follow, Empty, timeout=WAIT)
        await mq.send("orders", b"2")
    again = await Connection.open(
        f"127.0.0.1:{node.port + 1}", greeting(secret=secret), timeout=WAIT
    )

    assert again.welcome.epoch == server.welcome.epoch
    assert not server.closed
    await server.close()
    await again.close()


async def test_a_server_speaks_for_its_own_group_and_within_bounds(node: Node) -> None:
    secret = secret_of(node.data_dir / "node-secret")
    address = f"127.0.0.1:{node.port}"
    west = await Connection.open(address, greeting("west", secret=secret), timeout=WAIT)

    async def refused(command: Command, wanted: Record, error: type[TernError], text: str) -> None:
        with pytest.raises(error, match=text):
            await request(west, command, wanted, Empty, timeout=WAIT)

    of_main = MemberJoin(broker_group="main", kind="realtime", member=EVE)
    await refused(Command.MEMBER_JOIN, of_main, Unauthorized, "does not speak for 'main'")
    await refused(Command.REGISTER, Register(route=OF_EVE), Unauthorized, "does not speak")
    used_up = Reserve(broker_group="west", topic_ids=[2**60], group_id=0, epoch=0)
    await refused(Command.RESERVE, used_up, ternmq.BadRequest, "cannot be in use already")
    for text in ("\x1b]0;x", "a b", "x" * 5_000, ""):
        odd = MemberJoin(
            broker_group="west",
            kind="realtime",
            member=Member(id="1" * 16, name="one", address=text),
        )
        await refused(Command.MEMBER_JOIN, odd, ternmq.BadName, "address of a server")
    await west.close()


def test_the_secret_is_made_once_and_is_in_no_log(node: Node) -> None:
    path = node.data_dir / "node-secret"
    made = path.read_text(encoding="ascii")
    node.restart()

    assert path.read_text(encoding="ascii") == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert made.strip() not in node.stderr_text()


def test_a_data_directory_of_an_earlier_release_starts_and_makes_one(node: Node) -> None:
    assert tern("send", "orders", "1", url=node.url).code == 0
    node.stop()
    (node.data_dir / "node-secret").unlink()
    node.start()

    assert (node.data_dir / "node-secret").exists()
    assert tern("send", "orders", "later", "--delay", "100ms", url=node.url).code == 0

    async def arrives() -> list[bytes]:
        """What a delay server sends to a broker, as a server."""
        found: list[bytes] = []
        async with (
            ternmq.connect(node.url, app="shop") as mq,
            mq.consumer("orders", group="g", start="earliest") as consumer,
        ):
            async for message in consumer:
                found.append(message.body)
                await message.ack()
                if len(found) == 2:
                    return found
        raise AssertionError(found)

    assert asyncio.run(asyncio.wait_for(arrives(), WAIT)) == [b"1", b"later"]


def test_a_broker_with_another_secret_is_refused_and_both_logs_say_why(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    meta = node_factory.meta_server(f"sqlite:///{tmp_path / 'registry.db'}")
    other = tmp_path / "other-secret"
    other.touch(mode=0o600)
    other.write_text("the secret of another cluster altogether", encoding="ascii")
    broker = node_factory.broker_server(
        meta.url, "east", environment={"TERN_NODE_SECRET_FILE": str(other)}, start=False
    )
    broker.launch()

    assert broker.process.wait(30) == 1
    said = broker.stderr_text()
    assert str(other) in said and "node_secret_file" in said and "Traceback" not in said
    wait_until(lambda: "a server was refused" in meta.stderr_text(), "the line of the meta server")
    assert "shared-node-secret" in meta.stderr_text()
    broker.environment = {}
    broker.start()  # With the right one it is let in.


def test_a_running_broker_whose_meta_server_gets_another_secret_does_not_flood_the_logs(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    meta = node_factory.meta_server(f"sqlite:///{tmp_path / 'registry.db'}")
    broker = node_factory.broker_server(meta.url, "east")
    meta.stop()
    other = tmp_path / "other-secret"
    other.touch(mode=0o600)
    other.write_text("the secret of another cluster altogether", encoding="ascii")
    meta.environment = {"TERN_NODE_SECRET_FILE": str(other)}
    meta.start()
    wait_until(lambda: "node secret" in broker.stderr_text(), "the broker's complaint")
    lines = broker.stderr_text().count("\n")

    async def try_again_and_again() -> None:
        wrong = greeting("east", secret=SHARED_SECRET)
        for _ in range(100):
            with pytest.raises(Unauthorized):
                await Connection.open(f"127.0.0.1:{meta.port}", wrong, timeout=WAIT)

    asyncio.run(try_again_and_again())
    assert broker.stderr_text().count("\n") <= lines + 3
    assert meta.stderr_text().count("a server was refused") <= 2


def test_a_cluster_of_processes_shares_one_secret(node_factory: NodeFactory) -> None:
    cluster = node_factory.cluster("--groups", "1", "--replicas", "1")
    path = cluster.data_dir / "node-secret"

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not list(cluster.data_dir.glob("*/node-secret"))
    assert tern("send", "orders", "1", url=cluster.url).code == 0
