"""Keeps a server that is its own process on the routes, by registering with every meta server.

Heartbeats come from a thread with a loop of its own, so that a busy server is not taken for a dead
one. The server's loop leaves a mark several times a second; when the marks stop, the thread falls
silent and the server goes off the routes. Leaving the block withdraws at once.

A loop that brings its own workers (a simulation) has no threads: there the heartbeats are tasks.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import msgspec

from ternmq.core.clock import SystemClock
from ternmq.core.errors import TernError, Unavailable
from ternmq.core.worker import has_threads
from ternmq.discovery.cluster_identity import ClusterIdentity
from ternmq.node.joining.heartbeat import Heartbeat
from ternmq.rpc.node_proof import Greeting
from ternmq.wire.messages.servers import Register, Route

FIRST_WITHIN_S = 30.0
"""Longer than a server of the same name that was killed counts as running."""
MARK_S = 0.25
HANGS_AFTER_S = 1.0
"""A loop that did nothing for so long may never do anything again."""
LEAVE_S = 6.0


class Registration:
    """What the meta servers are told. Set on the server's loop, read by the heartbeats."""

    def __init__(self, register: Register, cluster: ClusterIdentity) -> None:
        self._register = register
        self._cluster = cluster
        self._clock = SystemClock()
        self._apart = has_threads()
        self._marked = self._clock.monotonic()
        self._known = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def set_epoch(self, epoch: int) -> None:
        self._register = msgspec.structs.replace(self._register, epoch=epoch)

    @property
    def register(self) -> Register:
        return self._register

    def hangs(self) -> bool:
        return self._apart and self._clock.monotonic() - self._marked > HANGS_AFTER_S

    def first(self) -> None:
        if not self._known.is_set():
            self._loop.call_soon_threadsafe(self._known.set)

    def refusal(self, address: str, cluster: str) -> TernError | None:
        known = self._cluster
        return known.refusal(address, cluster) if known.is_foreign(cluster) else None

    async def known(self) -> None:
        """Until a meta server has it."""
        await self._known.wait()

    async def mark(self) -> None:
        while self._apart:
            self._marked = self._clock.monotonic()
            await asyncio.sleep(MARK_S)


class Heartbeats:
    """The heartbeats of one server to all meta servers, on one loop."""

    def __init__(
        self, addresses: Sequence[str], greeting: Greeting, registration: Registration
    ) -> None:
        self._addresses = addresses
        self._greeting = greeting
        self._registration = registration
        self._heartbeats: list[Heartbeat] = []
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False

    async def run(self) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._stopped:  # Before we began.
            return
        self._heartbeats = [
            Heartbeat(address, self._greeting, self._registration) for address in self._addresses
        ]
        tasks = [asyncio.create_task(each.run()) for each in self._heartbeats]
        try:
            await self._stop.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await asyncio.gather(*(each.leave() for each in self._heartbeats))

    def set_epoch(self, epoch: int) -> None:
        """The server leads at this epoch (0: it is a replica); told at once. On its loop."""
        self._registration.set_epoch(epoch)
        for each in self._heartbeats:
            self._call(each.wake)

    def stop(self) -> None:
        self._stopped = True
        self._call(lambda: self._stop.set())

    def trouble(self) -> TernError | None:
        troubles = (each.trouble for each in self._heartbeats)
        return next((each for each in troubles if each is not None), None)

    def _call(self, what: Callable[[], object]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # It has ended.
                self._loop.call_soon_threadsafe(what)


@asynccontextmanager
async def registered(
    addresses: Sequence[str],
    greeting: Greeting,
    route: Route,
    *,
    member: str = "",
    guarded: bool = False,
    cluster: ClusterIdentity | None = None,
) -> AsyncIterator[Heartbeats]:
    """Keep `route` on the routes while the block runs; the block begins when one meta has it. Meta
    servers of another cluster than this are told nothing."""
    register = Register(route=route, member=member, guarded=guarded)
    registration = Registration(register, cluster or ClusterIdentity())
    heartbeats = Heartbeats(addresses, greeting, registration)
    marking = asyncio.create_task(registration.mark(), name="tern-mark")
    running = asyncio.create_task(_run(heartbeats), name="tern-register")
    try:
        await _first(registration, heartbeats)
        yield heartbeats
    finally:
        heartbeats.stop()
        await asyncio.wait([running], timeout=LEAVE_S)
        marking.cancel()
        await asyncio.wait([marking])


async def _first(registration: Registration, heartbeats: Heartbeats) -> None:
    try:
        async with asyncio.timeout(FIRST_WITHIN_S):
            await registration.known()
    except TimeoutError:
        raise heartbeats.trouble() or Unavailable("no meta server answers") from None


async def _run(heartbeats: Heartbeats) -> None:
    """In a thread, or here where there are none."""
    if not has_threads():
        await heartbeats.run()
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def work() -> None:
        try:
            asyncio.run(heartbeats.run())
        finally:
            with suppress(RuntimeError):  # The server's loop has ended without waiting.
                loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=work, name="tern-heartbeat", daemon=True).start()
    await ended.wait()
