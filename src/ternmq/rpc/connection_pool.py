"""The connections of one listener: their limits, their totals, the turn, and the log of closes.

Bytes of all peers together are bounded. When there is no room for more, the peer that wants it is
paused until there is. Half-received frames could then wait for each other forever, so one of
their owners at a time has the *turn*: it may go on and finish its frame. Answers that are not read
are bounded likewise: beyond it those who have not read for the longest time are cut.
"""

import asyncio
import enum
from collections.abc import Callable
from itertools import count
from typing import Generic, Protocol, TypeVar

from ternmq.core.errors import OverLimit, TernError
from ternmq.core.log import LogBudget, get_logger
from ternmq.core.units import MIB
from ternmq.rpc.address import join_address
from ternmq.rpc.limits import ServerLimits
from ternmq.rpc.node_proof import NodeGate
from ternmq.wire.messages.hello import Hello

log = get_logger()

TURN_SIZE_MAX = 32 * MIB
"""Large answers made in one turn of the loop, for all peers together."""


RESERVE_MAX = 16


def reserve_of(connections_max: int) -> int:
    """So many of them are not for everybody: a crowd does not keep replicas and admins out."""
    return min(RESERVE_MAX, connections_max // 100)


class Pause(enum.IntFlag):
    """Why a peer is not read from."""

    INBOUND = 1
    MEMORY = 2
    UNREAD = 4
    BUSY = 8
    COSTLY = 16
    QUOTA = 32


class PooledPeer(Protocol):
    """What the pool needs of a peer."""

    address: tuple[str, int]
    hello: Hello | None
    stalled_since: float

    @property
    def half_received(self) -> bool: ...

    def pause(self, why: Pause) -> None: ...

    def resume(self, why: Pause) -> None: ...

    def flush(self) -> None: ...

    def go_on(self) -> None: ...

    def cut(self, reason: TernError) -> None: ...


G = TypeVar("G", bound=PooledPeer)


class ConnectionPool(Generic[G]):
    """One per listener."""

    def __init__(
        self, limits: ServerLimits, monotonic: Callable[[], float], gate: NodeGate
    ) -> None:
        self.limits = limits
        self.gate = gate
        """Lets servers of the cluster in."""
        self.monotonic = monotonic
        self.now = monotonic()
        """Monotonic time of the last sweep: good enough for limits of seconds, and free to read."""
        self.peers: dict[G, None] = {}
        self.numbers = count(1)
        """Of connections, in the order in which they came."""
        """In the order they came, so that everything done to all of them has an order."""
        self._of_address: dict[str, int] = {}
        """How many of them come from each."""
        self._on_reserve: dict[G, None] = {}
        """Those of them that have to say first whether they may have one of the last places."""
        self.leaving: dict[G, None] = {}
        self.nobody_leaving = asyncio.Event()
        self.held = 0
        """Bytes held for all peers, half-received frames included."""
        self.waiting_for_memory: dict[G, None] = {}
        """Peers that wait for `held` to fall, in order."""
        self.unsent: dict[G, int] = {}
        """Bytes of answers that peers who do not read have waiting."""
        self.may_finish: G | None = None
        """The one that may go on though there is no room: whole frames make room, halves do not."""
        self.connections_max = limits.connections_max
        self.refused = 0
        self.busy = False
        """Enough was answered in this turn of the loop; requests wait for the next one."""
        self._turn_size = 0
        self._unsent_total = 0
        self._loop = asyncio.get_running_loop()
        self._unflushed: list[G] = []
        self._log_budget = LogBudget(limits.closes_logged_max)

    def admit(self, peer: G) -> OverLimit | None:
        """One more, or why not."""
        host = peer.address[0]
        if len(self.peers) >= self.connections_max:
            reason = (
                f"this server has its {self.connections_max} connections; share connections, "
                "or raise connections_max and the open-file limit"
            )
        elif self._of_address.get(host, 0) >= self.limits.address_connections_max:
            reason = (
                f"{host} has its {self.limits.address_connections_max} connections here; share "
                "connections, or raise connections_per_address_max"
            )
        else:
            if len(self.peers) >= self.connections_max - reserve_of(self.connections_max):
                self._on_reserve[peer] = None
            self.peers[peer] = None
            self._of_address[host] = self._of_address.get(host, 0) + 1
            return None
        self.refused += 1
        return OverLimit(reason)

    def check_reserve(self, peer: G, *, entitled: bool) -> None:
        """Judge a client that has said who it is: the last connections are for servers of the
        cluster and for who may set others right; raises `OverLimit`."""
        if peer not in self._on_reserve:
            return
        del self._on_reserve[peer]
        if not entitled:
            self.refused += 1
            raise OverLimit(
                f"this server has all but the last of its {self.connections_max} connections, and "
                "these are for servers and admins; share connections, or raise connections_max"
            )

    def has_room(self, arriving: int, of_address: int) -> bool:
        """For one more behind those who are on the way through TLS; counted where there is none."""
        if (
            len(self.peers) + arriving < self.connections_max
            and of_address < self.limits.address_connections_max
        ):
            return True
        self.refused += 1
        return False

    def drop(self, peer: G) -> None:
        """A peer is gone, or was never let in."""
        self.waiting_for_memory.pop(peer, None)
        self._on_reserve.pop(peer, None)
        if peer not in self.peers:
            return
        del self.peers[peer]
        host = peer.address[0]
        self._of_address[host] -= 1
        if not self._of_address[host]:
            del self._of_address[host]

    def flush_later(self, peer: G) -> None:
        """One callback per turn of the loop for all peers that have something to send."""
        if not self._unflushed:
            self._loop.call_soon(self._flush)
        self._unflushed.append(peer)

    def _flush(self) -> None:
        unflushed, self._unflushed = self._unflushed, []
        for peer in unflushed:
            peer.flush()

    def go_on_later(self, peer: G) -> None:
        """Not at once: the caller that ended the pause is in the middle of something."""
        self._loop.call_soon(peer.go_on)

    def resume_later(self, peer: G, seconds: float) -> None:
        self._loop.call_later(seconds, peer.resume, Pause.COSTLY)

    def take(self, peer: G, size: int) -> None:
        """Count more bytes; without room for them the peer has to wait."""
        self.held += size
        if self.held <= self.limits.server_inbound_max or peer is self.may_finish:
            return
        if self.may_finish is None and peer.half_received:
            self.may_finish = peer
            return
        self.waiting_for_memory[peer] = None
        peer.pause(Pause.MEMORY)

    def give_back(self, size: int) -> None:
        self.held -= size
        assert self.held >= 0, "more released than held"
        if self.waiting_for_memory and self.held <= self.limits.server_inbound_max * 3 // 4:
            waiting, self.waiting_for_memory = self.waiting_for_memory, {}
            for peer in waiting:
                peer.resume(Pause.MEMORY)

    def let_next_finish(self) -> None:
        """The peer that may finish has its frame, or is gone: the next that waits may."""
        self.may_finish = next(
            (peer for peer in self.waiting_for_memory if peer.half_received), None
        )
        if self.may_finish is not None:
            del self.waiting_for_memory[self.may_finish]
            self.may_finish.resume(Pause.MEMORY)

    def answered(self, size: int) -> None:
        """A large answer was made. What is made in one turn is bounded, because memory of peers
        that are cut comes back only between turns."""
        if not self._turn_size:
            self._loop.call_soon(self._begin_turn)
        self._turn_size += size
        self.busy = self._turn_size > TURN_SIZE_MAX

    def _begin_turn(self) -> None:
        self._turn_size = 0
        self.busy = False

    def note_unsent(self, peer: G, size: int) -> None:
        """So much waits to be read by this peer; 0 when it reads again or is gone."""
        self._unsent_total += size - self.unsent.pop(peer, 0)
        if not size:
            return
        self.unsent[peer] = size
        while self._unsent_total > self.limits.server_write_max and self.unsent:
            slowest = min(self.unsent, key=lambda each: each.stalled_since)
            slowest.cut(OverLimit("memory is short, and this client does not read its answers"))
            self.note_unsent(slowest, 0)

    def report(self, peer: G, reason: TernError) -> None:
        """Log why a peer was closed, but never fill the log with it."""
        self._report(peer.address, peer.hello.app if peer.hello else None, reason)

    def report_stranger(self, address: tuple[str, int], reason: TernError) -> None:
        """Report a connection that never became a peer."""
        self._report(address, None, reason)

    def _report(self, address: tuple[str, int], app: str | None, reason: TernError) -> None:
        if self._log_budget.allows():
            log.warning(
                "peer closed",
                peer=join_address(*address),
                app=app,
                code=reason.code,
                reason=reason.message,
            )

    def reset_log_limit(self) -> None:
        unlogged = self._log_budget.left_out()
        if unlogged:
            log.warning("more peers closed", count=unlogged)
        self._log_budget.renew()
