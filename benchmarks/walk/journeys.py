"""One thing at a time on real servers in this process, warm, with nothing else going on.

Each journey is done several times and the walk with the fewest calls is kept: a heartbeat or a
checkpoint that fell into the others is no part of it. The first walk of a node is a second of
silence; what it calls is background in all others.
"""

import asyncio
import itertools
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import ternmq
import ternmq.testing
from benchmarks.walk.trace import Trace, Tree
from benchmarks.walk.tracer import Tracer
from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadConfig
from ternmq.node.broker_process import serving_broker_alone
from ternmq.node.config import build
from ternmq.node.meta_process import serving_meta_alone
from ternmq.rpc.node_proof import NodeSecret

QUIET_S = 1.2
SETTLED_S = 0.1
DELAY_S = 0.3
FIRED_S = 1.6
WARM = 5
LOOKS_MAX = 300
PORT_TRIES_MAX = 20
BODY = b"x" * 100
SECRET = NodeSecret("what the servers of a walk share, all of them", "this file")

Step = Callable[[], Awaitable[object]]


class Stage:
    """Servers, a client, and a tracer that knows what they do by themselves."""

    def __init__(self, tracer: Tracer, mq: ternmq.Client, runs: int) -> None:
        self.mq = mq
        self.runs = runs
        self._tracer = tracer
        self._topics = itertools.count()
        self._background: set[Tree] = set()

    def topic(self) -> str:
        return f"walk-{next(self._topics)}"

    async def listen_to_silence(self) -> None:
        with self._tracer.recording() as calls:
            await asyncio.sleep(QUIET_S)
        self._background = Trace(calls).trees

    async def fewest(
        self, step: Step, *, after: Step | None = None, noise: Trace | None = None
    ) -> Trace:
        """The shortest of several walks. What the event loop does in `after` is not part of it;
        what other threads begin in it is, unless it is known as noise."""
        background = self._background | (noise.trees if noise is not None else set())
        walks = []
        for _ in range(self.runs):
            await asyncio.sleep(SETTLED_S)
            with self._tracer.recording() as calls:
                if after is not None:
                    await after()
                before = len(calls)
                await step()
            whole = Trace(calls).since(before, threading.get_ident())
            walks.append(whole.without(background))
        return min(walks, key=lambda walk: len(walk.calls))


async def publish(stage: Stage) -> Trace:
    """A bare body, from the client's call to its receipt; the topic is known to everybody."""
    topic = stage.topic()
    for _ in range(WARM):
        await stage.mq.send(topic, BODY)
    return await stage.fewest(lambda: stage.mq.send(topic, BODY))


async def pull(stage: Stage) -> Trace:
    """A place gets free, the client pulls, the next message is in hand; the ack rides along."""
    topic = stage.topic()
    await stage.mq.send_many(topic, [BODY])
    for _ in range(stage.runs + WARM):
        await stage.mq.send(topic, BODY)
    async with stage.mq.consumer(topic, group="walk", prefetch=1) as consumer:
        held = await anext(consumer)

        async def step() -> None:
            nonlocal held
            held.ack()
            held = await anext(consumer)

        await step()
        found = await stage.fewest(step)
        await held.ack()
    return found


async def ack(stage: Stage) -> Trace:
    """An ack that is waited for."""
    topic = stage.topic()
    await stage.mq.send_many(topic, [BODY] * (stage.runs + WARM))
    async with stage.mq.consumer(topic, group="walk") as consumer:
        messages = [await anext(consumer) for _ in range(stage.runs + WARM)]
        await messages.pop().ack()
        found = await stage.fewest(lambda: messages.pop().ack())
        for message in messages:
            await message.ack()
    return found


async def dead(stage: Stage) -> Trace:
    """A second attempt of two fails: retry is called and a dead letter is stored."""
    topic = stage.topic()
    await stage.mq.send_many(topic, [BODY] * (stage.runs + 1))
    async with stage.mq.consumer(topic, group="walk-dead", attempts_max=2) as consumer:
        failing = []
        async for message in consumer:
            if message.attempt == 1:
                message.retry(after=0, reason="the bank does not answer")
            else:
                failing.append(message)
            if len(failing) > stage.runs:
                break

        async def step() -> None:
            await failing.pop().retry(after=0, reason="the bank does not answer")

        await step()  # The topic of dead letters is made with the first one.
        return await stage.fewest(step)


async def delay(stage: Stage) -> Trace:
    """A message for later, from the client's call to its receipt."""
    topic = stage.topic()
    await stage.mq.send(topic, BODY)
    for _ in range(WARM):
        await stage.mq.send(topic, BODY, delay=600)
    return await stage.fewest(lambda: stage.mq.send(topic, BODY, delay=600))


async def fire(stage: Stage) -> Trace:
    """The rest of its life: scheduled, fired, dispatched, known as done."""
    topic = stage.topic()
    await stage.mq.send(topic, BODY)
    await stage.mq.send(topic, BODY, delay=0.01)
    await asyncio.sleep(FIRED_S)
    return await stage.fewest(
        lambda: asyncio.sleep(FIRED_S),
        after=lambda: stage.mq.send(topic, BODY, delay=DELAY_S),
        noise=await delay(stage),
    )


async def replicate(stage: Stage) -> Trace:
    """A publish to a master with one replica: both have it on disk before the receipt."""
    return await publish(stage)


ON_ONE_NODE: dict[str, Callable[[Stage], Awaitable[Trace]]] = {
    "publish": publish,
    "pull": pull,
    "ack": ack,
    "dead": dead,
    "delay": delay,
    "fire": fire,
}
ON_A_PAIR: dict[str, Callable[[Stage], Awaitable[Trace]]] = {"replicate": replicate}
JOURNEYS = ON_ONE_NODE | ON_A_PAIR


@asynccontextmanager
async def pair() -> AsyncIterator[str]:
    """A meta server, a master and its replica in this process; yields the url once in sync."""
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tern-walk-")))

        def meta(ports: int) -> AbstractAsyncContextManager[str]:
            config = build({"data_dir": folder / "meta", "ports": ports})
            return serving_meta_alone(config, secret=SECRET, clock=clock)

        url = await started(stack, meta)
        for name in ("one", "two"):

            def broker(ports: int, name: str = name) -> AbstractAsyncContextManager[str]:
                config = build({"data_dir": folder / name, "ports": ports})
                return serving_broker_alone(config, url, secret=SECRET, clock=clock)

            await started(stack, broker)
        await both_in_sync(url)
        yield url


async def started(
    stack: AsyncExitStack, serving: Callable[[int], AbstractAsyncContextManager[str]]
) -> str:
    """Start a server on ports that are free, until another process was not faster."""
    for _ in range(PORT_TRIES_MAX):
        try:
            return await stack.enter_async_context(serving(neighbouring_ports()))
        except* BadConfig:
            pass  # Taken meanwhile; a server says so from within its task group.
    raise BadConfig("no free ports")


def neighbouring_ports() -> int:
    """The first of two ports that are free: a broker listens on the second."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


async def both_in_sync(url: str) -> None:
    async with ternmq.connect(url, app="walk") as mq:
        for _ in range(LOOKS_MAX):
            if [len(each.in_sync) for each in await mq.admin.standings()] == [2]:
                return
            await asyncio.sleep(SETTLED_S)
    raise TimeoutError("the replica did not get in sync")


async def walk(names: list[str], *, runs: int) -> dict[str, Trace]:
    """Do the journeys of these names; the tracer must hear every thread from its start."""
    found: dict[str, Trace] = {}
    with Tracer().installed() as tracer:
        for servers, journeys in ((ternmq.testing.node, ON_ONE_NODE), (pair, ON_A_PAIR)):
            wanted = [name for name in names if name in journeys]
            if not wanted:
                continue
            async with servers() as url, ternmq.connect(url, app="walk") as mq:
                stage = Stage(tracer, mq, runs)
                await mq.send("warm", BODY)
                await stage.listen_to_silence()
                for name in wanted:
                    found[name] = await journeys[name](stage)
    return {name: found[name] for name in names}
