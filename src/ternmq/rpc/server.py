"""The listener: accepts peers while the block runs, and closes those that cost too much.

One timer per listener, the *sweep*, looks at all peers once a second: silent ones, half-sent
frames, peers that do not read. Stopping: `stop_accepting()` first, then the owner finishes what it
has accepted, then leaving the block closes every peer after sending what was written, bounded by
`limits.linger`. With TLS connections come through a door of their own (`security/tls/door`).
"""

import asyncio
import errno
import resource
import socket
from collections.abc import AsyncIterator, KeysView
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from ternmq.core.clock import Clock
from ternmq.core.errors import BadConfig, OverLimit
from ternmq.core.log import get_logger
from ternmq.rpc.address import join_address
from ternmq.rpc.connection_pool import ConnectionPool
from ternmq.rpc.guarded.guarded_peer import GuardedHandler, GuardedPeer
from ternmq.rpc.limits import ServerLimits
from ternmq.rpc.memory import keep_freed_memory
from ternmq.rpc.node_proof import NodeGate
from ternmq.rpc.peer import Handler, Peer
from ternmq.security.tls.door import BACKLOG, IncomingTls, TlsDoor, TlsTerms

__all__ = [
    "Handler",
    "Listener",
    "Peer",
    "ServerLimits",
    "listening",
    "make_listener",
    "started",
]

log = get_logger()

FILES_KEPT = 128
"""Open files that are not for connections: logs, the registry, what the interpreter has open."""


class Listener:
    """One listening socket and the peers that came through it."""

    def __init__(
        self,
        pool: ConnectionPool[Peer],
        handler: Handler,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        tls: IncomingTls | None = None,
    ) -> None:
        self._pool = pool
        self._handler = handler
        self._clock = clock
        self._loop = loop
        self.tls = tls
        """None: in the clear."""
        self._server: asyncio.Server | None = None
        self._door: TlsDoor | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.address: tuple[str, int] = ("", 0)

    @property
    def peers(self) -> KeysView[Peer]:
        return self._pool.peers.keys()

    @property
    def held(self) -> int:
        """Bytes accepted and not answered, of all peers, with half-received frames."""
        return self._pool.held

    @property
    def refused(self) -> int:
        """Connections turned away because there were too many."""
        return self._pool.refused

    async def start(self, host: str, port: int) -> None:
        """Bind and listen; raises `BadConfig` if the address cannot be had."""
        self._pool.now = self._clock.monotonic()  # It may have been made a while ago.
        try:
            name = await (
                self._listen(host, port) if self.tls is None else self._open_door(host, port)
            )
        except OSError as error:
            raise BadConfig(cannot_listen(host, port, error)) from error
        self.address = (name[0], name[1])
        self._schedule()

    def _new_peer(self, terms: TlsTerms | None = None) -> Peer:
        handler = self._handler
        if isinstance(handler, GuardedHandler):
            return GuardedPeer(self._pool, handler, tls=terms)
        return Peer(self._pool, handler, tls=terms)

    async def _listen(self, host: str, port: int) -> Any:
        """In the clear."""
        self._server = await self._loop.create_server(
            self._new_peer, host, port, backlog=BACKLOG, reuse_address=True
        )
        return self._server.sockets[0].getsockname()

    async def _open_door(self, host: str, port: int) -> Any:
        """Over TLS."""
        assert self.tls is not None
        pool = self._pool
        limits = pool.limits
        self._door = TlsDoor(
            self.tls, pool, self._new_peer, arrive_s=limits.hello_timeout, linger_s=limits.linger
        )
        await self._door.open(host, port)
        return self._door.sockets[0].getsockname()

    def stop_accepting(self) -> None:
        """Refuse new connections; those that are there go on."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._door is not None:
            self._door.close()

    async def stop(self) -> None:
        """Close all peers, giving what was written up to `linger` to be sent."""
        self.stop_accepting()
        if self._door is not None:
            await self._door.empty()
        pool = self._pool
        for peer in tuple(pool.peers):
            peer.close()
        if self._timer is not None:
            self._timer.cancel()
        if not pool.leaving:
            return
        try:
            async with asyncio.timeout(pool.limits.linger):
                await pool.nobody_leaving.wait()
        except TimeoutError:
            for peer in tuple(pool.leaving):
                peer.abort()
            await pool.nobody_leaving.wait()  # One turn of the loop; nothing outlives this call.

    def _schedule(self) -> None:
        self._timer = self._loop.call_later(self._pool.limits.sweep, self._sweep)

    def _sweep(self) -> None:
        """A bug in it must not be the last sweep."""
        try:
            self._sweep_now()
        finally:
            self._schedule()

    def _sweep_now(self) -> None:
        pool, limits = self._pool, self._pool.limits
        before, pool.now = pool.now, self._clock.monotonic()
        if pool.now - before > 2 * limits.sweep + limits.idle_timeout / 3:
            for peer in pool.peers:  # We were away ourselves (stopped, or a long stall).
                peer.heard_at = pool.now
        for peer in tuple(pool.peers):
            reason = peer.overdue(pool.now)
            if reason is not None:
                peer.close(reason)
        if pool.waiting_for_memory:
            self._make_room()
        for peer in tuple(pool.leaving):
            if pool.now >= peer.leave_by:
                peer.abort()
        pool.reset_log_limit()

    def _make_room(self) -> None:
        """Close peers that hold memory for a frame that does not come, although it is read for."""
        pool = self._pool
        for peer in tuple(pool.peers):
            if pool.waiting_for_memory and peer.stuck(pool.now):
                peer.close(OverLimit("memory is short, and this frame takes too long"))


@asynccontextmanager
async def listening(
    host: str,
    port: int,
    handler: Handler,
    *,
    limits: ServerLimits,
    clock: Clock,
    gate: NodeGate | None = None,
    tls: IncomingTls | None = None,
) -> AsyncIterator[Listener]:
    """Serve while the block runs; port 0 takes a free one, see `Listener.address`."""
    listener = make_listener(handler, limits=limits, clock=clock, gate=gate, tls=tls)
    async with started(listener, host, port):
        yield listener


@asynccontextmanager
async def started(listener: Listener, host: str, port: int) -> AsyncIterator[None]:
    """Let it listen while the block runs."""
    await listener.start(host, port)
    try:
        yield
    finally:
        await listener.stop()


def make_listener(
    handler: Handler,
    *,
    limits: ServerLimits,
    clock: Clock,
    gate: NodeGate | None = None,
    tls: IncomingTls | None = None,
) -> Listener:
    """One that does not listen yet; without a gate no server of the cluster can come, without
    `tls` nothing is encrypted."""
    keep_freed_memory()
    gate = gate or NodeGate(None, "broker", now=clock.monotonic)
    possible = connections_possible(limits.connections_max)
    pool: ConnectionPool[Peer] = ConnectionPool(
        replace(limits, connections_max=possible), clock.monotonic, gate
    )
    return Listener(pool, handler, clock, asyncio.get_running_loop(), tls)


def connections_possible(wanted: int) -> int:
    """No more connections than files may be open, so that the last one is told why."""
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files_max == resource.RLIM_INFINITY or files_max - FILES_KEPT >= wanted:
        return wanted
    possible = max(files_max - FILES_KEPT, files_max // 2, 1)
    log.warning("fewer connections than wanted", possible=possible, wanted=wanted, files=files_max)
    return possible


def cannot_listen(host: str, port: int, error: OSError) -> str:
    """What to do about an address that cannot be had."""
    address = join_address(host, port)
    if error.errno == errno.EADDRINUSE or "already in use" in str(error):
        return f"{address} is taken by another process; stop it or choose other ports"
    if isinstance(error, socket.gaierror):
        return f"cannot listen on {address}: the host name is unknown"
    if error.errno == errno.EACCES:
        return f"cannot listen on {address}: ports below 1024 need privileges"
    return f"cannot listen on {address}: {error.strerror or error}"
