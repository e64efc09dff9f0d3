"""From a frame to the part that answers it: every command of a delay server is a line in one table.

PUBLISH and what members ask get the frame and answer when they can; the others get the unpacked
request, and their answer is awaited. HELLO and PING are the connection's own (`rpc.peer`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

from ternmq.core.errors import BadRequest, ProtocolError, Unavailable
from ternmq.delay.bootstrap_transfer import BootstrapLender
from ternmq.delay.intake.accept import Acceptor
from ternmq.delay.operations.changes import Changes
from ternmq.delay.operations.find import DelayFinder
from ternmq.delay.operations.status import DelayLeaderStatus
from ternmq.replication.member.figures import FigureInspection
from ternmq.replication.member.server_kind import MemberCommands
from ternmq.rpc.peer import Peer
from ternmq.rpc.pending_requests import PendingRequests
from ternmq.wire.frame import Frame
from ternmq.wire.inspection.figures import FiguresFind
from ternmq.wire.messages.delays import (
    DelayChange,
    DelayCountQuery,
    DelayFind,
    DelayLedgerQuery,
    DelayShow,
)
from ternmq.wire.messages.stats import Status, StatusQuery
from ternmq.wire.numbers import Command, Flag
from ternmq.wire.record import Record, pack, unpack

Handle = Callable[[Peer, Frame], None]
R = TypeVar("R", bound=Record)
_ONE_WAY = frozenset({Command.REPLICATED})
"""Commands that are not answered."""
_WHILE_STOPPING = frozenset({Command.REPLICATED})
"""A server that stops still waits for its replicas, which say that they have what it wrote."""


class DelayRouter:
    """The commands of a delay server that leads."""

    def __init__(
        self,
        *,
        acceptor: Acceptor,
        changes: Changes,
        finder: DelayFinder,
        lender: BootstrapLender,
        status: DelayLeaderStatus,
        figure_looks: FigureInspection,
        members: MemberCommands,
    ) -> None:
        self._pending = PendingRequests()
        self._stopping = False
        self._turns: WeakKeyDictionary[Peer, asyncio.Lock] = WeakKeyDictionary()
        later = self._later
        self._table: dict[int, Handle] = {
            Command.PUBLISH: acceptor.publish,
            Command.DELAY_CHANGE: self._change(changes),
            Command.DELAY_FIND: self._in_turn(DelayFind, finder.find),
            Command.DELAY_SHOW: later(DelayShow, finder.show),
            Command.DELAY_COUNT: later(DelayCountQuery, finder.count),
            Command.DELAY_LEDGER: later(DelayLedgerQuery, finder.ledger),
            Command.STATUS: _say_status(status.status),
            Command.FIGURES: later(FiguresFind, figure_looks.figures),
            # Members of this delay server.
            Command.BASE_OPEN: lender.open,
            Command.BASE_READ: lender.read,
            Command.FOLLOW: members.follow,
            Command.REPLICATED: members.replicated,
            Command.HANDOVER: members.hand_over,
        }

    @property
    def commands(self) -> frozenset[int]:
        """What is answered here while the delay server leads."""
        return frozenset(self._table)

    def route(self, peer: Peer, frame: Frame) -> None:
        command = frame.command
        if frame.flags & Flag.ONE_WAY and command not in _ONE_WAY:
            raise ProtocolError(f"{Command(command).name} needs an answer")
        if self._stopping and command not in _WHILE_STOPPING:
            raise Unavailable("the delay server is stopping; connect again in a moment")
        handle = self._table.get(command)
        if handle is None:
            raise BadRequest(
                f"a delay server does not answer {Command(command).name}; ask a broker"
            )
        handle(peer, frame)

    def _change(self, changes: Changes) -> Handle:
        """What is another's needs a right more, so it is told who asks."""

        def handle(peer: Peer, frame: Frame) -> None:
            request = unpack(frame.payload, DelayChange)
            self._pending.begin(peer, frame, changes.change(request, peer.rights))

        return handle

    def _later(self, kind: type[R], answer: Callable[[R], Awaitable[Record]]) -> Handle:
        """Answered in time by what the part returns."""

        def handle(peer: Peer, frame: Frame) -> None:
            self._pending.begin(peer, frame, answer(unpack(frame.payload, kind)))

        return handle

    def _in_turn(self, kind: type[R], answer: Callable[[R], Awaitable[Record]]) -> Handle:
        """Requests that read through files: one at a time of each peer, so that a crowd of one
        peer's does not stand before those of others."""

        async def work(peer: Peer, request: R) -> Record:
            async with self._turns.setdefault(peer, asyncio.Lock()):
                if peer.closed or self._stopping:  # Nobody waits for what would be read.
                    raise Unavailable("the delay server is stopping, or its client is gone")
                return await answer(request)

        def handle(peer: Peer, frame: Frame) -> None:
            self._pending.begin(peer, frame, work(peer, unpack(frame.payload, kind)))

        return handle

    def stop(self) -> None:
        """Refuse new requests."""
        self._stopping = True

    async def finish(self) -> None:
        """Wait for the requests that have begun."""
        await self._pending.finish()


def follower_commands(status: Callable[[], Status]) -> dict[int, Handle]:
    """The commands of a delay server that follows."""
    return {Command.STATUS: _say_status(status)}


def _say_status(status: Callable[[], Status]) -> Handle:
    def handle(peer: Peer, frame: Frame) -> None:
        unpack(frame.payload, StatusQuery)
        peer.answer(frame.command, frame.correlation, pack(status()))

    return handle
