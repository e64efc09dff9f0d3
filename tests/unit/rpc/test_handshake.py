"""The first frames of connections, over real sockets: clients, servers, and those who pretend."""

import asyncio

import pytest

from ternmq.core.clock import SystemClock
from ternmq.core.errors import ProtocolError, Unauthorized
from ternmq.rpc.address import join_address
from ternmq.rpc.connection import Connection
from ternmq.rpc.node_proof import NodeGate, NodeIdentity, NodeSecret
from ternmq.rpc.peer import Peer
from ternmq.rpc.server import ServerLimits, listening
from ternmq.wire.frame import Frame
from ternmq.wire.messages.hello import BROKER, PROTOCOL_VERSION, Auth, Hello, Welcome
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack
from tests.node_greeting import SECRET, greeting

SHOP = Hello(protocol=PROTOCOL_VERSION, app="shop", version="0", session=bytes(16))
WAIT = 10.0


class Listening:
    """Says who asked."""

    def __init__(self) -> None:
        self.welcomed: list[tuple[str, NodeIdentity | None]] = []
        self.frames: list[int] = []

    def welcome(self, peer: Peer, hello: Hello) -> Welcome:
        self.welcomed.append((hello.app, peer.node))
        return Welcome(protocol=PROTOCOL_VERSION, version="0", role="broker", node="n")

    def frame(self, peer: Peer, frame: Frame) -> None:
        self.frames.append(frame.command)
        peer.answer(frame.command, frame.correlation, b"")

    def lost(self, peer: Peer) -> None:
        pass


async def test_a_client_is_let_in_by_its_first_frame_and_a_server_by_its_proof() -> None:
    handler, clock = Listening(), SystemClock()
    gate = NodeGate(SECRET, "broker", "main", now=clock.monotonic)
    async with listening(
        "127.0.0.1", 0, handler, limits=ServerLimits(), clock=clock, gate=gate
    ) as listener:
        address = join_address(*listener.address)
        client = await Connection.open(address, SHOP, timeout=WAIT)
        assert client._correlation == 1, "one frame, one answer"
        server = await Connection.open(address, greeting("east"), timeout=WAIT)

        assert handler.welcomed == [("shop", None), (BROKER, NodeIdentity("realtime", "east"))]
        with pytest.raises(Unauthorized, match="only servers"):
            await client.call(Command.REGISTER)
        await server.call(Command.REGISTER)
        await client.call(Command.STATUS)
        assert handler.frames == [Command.REGISTER, Command.STATUS]
        await client.close()
        await server.close()


async def test_a_one_way_frame_of_servers_from_a_client_never_reaches_the_handler() -> None:
    handler = Listening()
    async with listening(
        "127.0.0.1", 0, handler, limits=ServerLimits(), clock=SystemClock()
    ) as listener:
        client = await Connection.open(join_address(*listener.address), SHOP, timeout=WAIT)
        client.send(Command.REPLICATED, b"x" * 24)
        await client.call(Command.STATUS)
        assert handler.frames == [Command.STATUS]
        await client.close()


async def test_who_pretends_is_refused_and_never_welcomed() -> None:
    handler, clock = Listening(), SystemClock()
    gate = NodeGate(SECRET, "broker", "main", now=clock.monotonic)
    other = NodeSecret("the secret of another cluster altogether", "elsewhere")
    async with listening(
        "127.0.0.1", 0, handler, limits=ServerLimits(), clock=clock, gate=gate
    ) as listener:
        address = join_address(*listener.address)
        named = Hello(protocol=PROTOCOL_VERSION, app=BROKER, version="0", session=bytes(16))
        with pytest.raises(Unauthorized, match="proves nothing"):
            await Connection.open(address, named, timeout=WAIT)
        with pytest.raises(Unauthorized, match="elsewhere"):
            await Connection.open(address, greeting(secret=other), timeout=WAIT)
        assert gate.refused == 1, "the server's log says it too"
        assert handler.welcomed == []


@pytest.mark.parametrize("second", [Command.STATUS, Command.REGISTER, Command.HELLO])
async def test_between_hello_and_auth_nothing_else_is_taken(second: Command) -> None:
    handler, clock = Listening(), SystemClock()
    gate = NodeGate(SECRET, "broker", "main", now=clock.monotonic)
    async with listening(
        "127.0.0.1", 0, handler, limits=ServerLimits(), clock=clock, gate=gate
    ) as listener:
        connection = Connection(join_address(*listener.address), asyncio.get_running_loop())
        await asyncio.get_running_loop().create_connection(lambda: connection, *listener.address)
        opening = greeting().begin()
        await connection.call(Command.HELLO, opening.hello)
        with pytest.raises(ProtocolError, match="AUTH follows"):
            await connection.call(second, pack(Auth(proof=b"")))
        assert handler.welcomed == [] and handler.frames == []
        connection.abort()
