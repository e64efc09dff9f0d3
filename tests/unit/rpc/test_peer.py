"""The time that requests take is their peer's: the others have the loop in between (H3)."""

import asyncio
from collections.abc import Callable

import pytest

from ternmq.rpc import peer as peer_module
from ternmq.rpc.address import join_address
from ternmq.rpc.connection import Connection
from ternmq.rpc.limits import ServerLimits
from ternmq.rpc.peer import COSTLY_S, TURN_S, Peer
from ternmq.rpc.server import listening
from ternmq.wire.frame import Frame
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello, Welcome
from ternmq.wire.numbers import Command

HELLO = Hello(protocol=PROTOCOL_VERSION, app="shop", version="0", session=bytes(16))
WAIT = 10.0


class Stopwatch:
    """A clock on which only handlers spend time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return 0


class Costly:
    """Every request takes this long."""

    def __init__(self, clock: Stopwatch, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds
        self.order: list[str] = []

    def welcome(self, peer: Peer, hello: Hello) -> Welcome:
        return Welcome(protocol=PROTOCOL_VERSION, version="0", role="broker", node="n")

    def frame(self, peer: Peer, frame: Frame) -> None:
        assert peer.hello is not None
        self.order.append(peer.hello.host)
        if peer.hello.host == "greedy":
            self.clock.seconds += self.seconds
        peer.answer(frame.command, frame.correlation, b"")

    def lost(self, peer: Peer) -> None:
        pass


def named(host: str) -> Hello:
    return Hello(protocol=PROTOCOL_VERSION, app="a", version="0", session=bytes(16), host=host)


@pytest.mark.parametrize("seconds", [TURN_S * 1.1, COSTLY_S * 1.1])
async def test_a_pipeline_of_costly_requests_lets_others_in_between(seconds: float) -> None:
    clock = Stopwatch()
    handler = Costly(clock, seconds)
    async with listening("127.0.0.1", 0, handler, limits=ServerLimits(), clock=clock) as listener:
        address = join_address(*listener.address)
        greedy = await Connection.open(address, named("greedy"), timeout=WAIT)
        modest = await Connection.open(address, named("modest"), timeout=WAIT)
        under_way = [greedy.call(Command.GROUP_LIST) for _ in range(50)]
        await under_way[0]
        await modest.call(Command.STATUS)
        done = sum(each.done() for each in under_way)
        assert done < 50, "it had to wait for all of them"
        await asyncio.gather(*under_way)
        assert handler.order.count("greedy") == 50, "none is lost"
        await greedy.close()
        await modest.close()


async def test_who_took_long_rests_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    real: Callable[[Peer, float], None] = Peer.rest

    def noted(peer: Peer, seconds: float) -> None:
        rests.append(seconds)
        real(peer, seconds)

    monkeypatch.setattr(peer_module.Peer, "rest", noted)
    for seconds, rested in ((TURN_S / 10, None), (TURN_S * 1.5, 0.0), (0.05, 0.05)):
        rests.clear()
        clock = Stopwatch()
        handler = Costly(clock, seconds)
        async with listening(
            "127.0.0.1", 0, handler, limits=ServerLimits(), clock=clock
        ) as listener:
            connection = await Connection.open(
                join_address(*listener.address), named("greedy"), timeout=WAIT
            )
            await connection.call(Command.STATUS)
            await connection.call(Command.STATUS)
            await connection.close()
        assert [pytest.approx(each) for each in rests[:1]] == ([] if rested is None else [rested])


async def test_cheap_requests_add_up() -> None:
    """A thousand of a millisecond are a second for everybody else."""
    clock = Stopwatch()
    handler = Costly(clock, TURN_S / 4)
    async with listening("127.0.0.1", 0, handler, limits=ServerLimits(), clock=clock) as listener:
        address = join_address(*listener.address)
        greedy = await Connection.open(address, named("greedy"), timeout=WAIT)
        modest = await Connection.open(address, named("modest"), timeout=WAIT)
        under_way = [greedy.call(Command.STATUS) for _ in range(1_000)]
        await under_way[0]
        await modest.call(Command.STATUS)
        assert not all(each.done() for each in under_way)
        await asyncio.gather(*under_way)
        await greedy.close()
        await modest.close()
