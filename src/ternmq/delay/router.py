"""From a frame to the part that answers it: every command of a delay server is a line in one table.

A *hot* command gets the frame and answers when it can. A *slow* one gets the unpacked request and
its answer is awaited. HELLO and PING are the connection's own (`rpc.peer`).
"""

from collections.abc import Awaitable, Callable
from typing import Any

from ternmq.core.errors import BadRequest, ProtocolError, Unavailable
from ternmq.delay.bootstrap_transfer import BootstrapLender
from ternmq.delay.intake.accept import Acceptor
from ternmq.delay.operations.changes import Changes
from ternmq.delay.operations.find import DelayFinder
from ternmq.delay.operations.status import DelayLeaderStatus
from ternmq.replication.member.server_kind import MemberCommands
from ternmq.rpc.peer import Peer
from ternmq.rpc.pending_requests import PendingRequests
from ternmq.wire.frame import Frame
from ternmq.wire.messages.delays import DelayChange, DelayCountQuery, DelayFind, DelayLedgerQuery
from ternmq.wire.messages.stats import StatusQuery
from ternmq.wire.numbers import Command, Flag
from ternmq.wire.record import Record, pack, unpack

Slow = Callable[[Any], Awaitable[Record]]
Hot = Callable[[Peer, Frame], None]
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
        members: MemberCommands,
    ) -> None:
        self._status = status
        self._pending = PendingRequests()
        self._stopping = False
        self._hot: dict[int, Hot] = {
            Command.PUBLISH: acceptor.publish,
            Command.STATUS: self._answer_status,
            Command.BASE_OPEN: lender.open,
            Command.BASE_READ: lender.read,
            Command.FOLLOW: members.follow,
            Command.REPLICATED: members.replicated,
            Command.HANDOVER: members.hand_over,
        }
        self._slow: dict[int, tuple[type[Record], Slow]] = {
            Command.DELAY_CHANGE: (DelayChange, changes.change),
            Command.DELAY_FIND: (DelayFind, finder.find),
            Command.DELAY_COUNT: (DelayCountQuery, finder.count),
            Command.DELAY_LEDGER: (DelayLedgerQuery, finder.ledger),
        }

    @property
    def commands(self) -> frozenset[int]:
        """What is answered here while the delay server leads."""
        return frozenset(self._hot) | frozenset(self._slow)

    def route(self, peer: Peer, frame: Frame) -> None:
        command = frame.command
        if frame.flags & Flag.ONE_WAY and command not in _ONE_WAY:
            raise ProtocolError(f"{Command(command).name} needs an answer")
        if self._stopping and command not in _WHILE_STOPPING:
            raise Unavailable("the delay server is stopping; connect again in a moment")
        hot = self._hot.get(command)
        if hot is not None:
            hot(peer, frame)
            return
        slow = self._slow.get(command)
        if slow is None:
            raise BadRequest(
                f"a delay server does not answer {Command(command).name}; ask a broker"
            )
        self._pending.begin(peer, frame, slow[1](unpack(frame.payload, slow[0])))

    def _answer_status(self, peer: Peer, frame: Frame) -> None:
        unpack(frame.payload, StatusQuery)
        peer.answer(frame.command, frame.correlation, pack(self._status.status()))

    def stop(self) -> None:
        """Refuse new requests."""
        self._stopping = True

    async def finish(self) -> None:
        """Wait for the requests that have begun."""
        await self._pending.finish()
