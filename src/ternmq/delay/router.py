"""From a frame to the part that handles it. A command is one line in one table."""

from collections.abc import Awaitable, Callable
from typing import Any

from ternmq.core.errors import BadRequest, ProtocolError, Unavailable
from ternmq.delay.intake.accept import Acceptor
from ternmq.delay.operations.changes import Changes
from ternmq.delay.operations.find import DelayFinder
from ternmq.rpc.peer import Peer
from ternmq.rpc.pending_requests import PendingRequests
from ternmq.wire.frame import Frame
from ternmq.wire.messages.delays import DelayChange, DelayCountQuery, DelayFind, DelayLedgerQuery
from ternmq.wire.messages.stats import Status, StatusQuery
from ternmq.wire.numbers import Command, Flag
from ternmq.wire.record import Record, pack, unpack

Slow = Callable[[Any], Awaitable[Record]]
Hot = Callable[[Peer, Frame], None]
_LAST_WORDS = {Command.REPLICATED}
"""What a server that stops still needs: replicas say that they have it."""


class DelayRouter:
    """Frames in, parts called."""

    def __init__(
        self,
        *,
        acceptor: Acceptor,
        changes: Changes,
        finder: DelayFinder,
        status: Callable[[StatusQuery], Status],
    ) -> None:
        self._status = status
        self._answering = PendingRequests()
        self.stopping = False
        self._hot: dict[int, Hot] = {Command.PUBLISH: acceptor.publish}
        self._slow: dict[int, tuple[type[Record], Slow]] = {
            Command.DELAY_CHANGE: (DelayChange, changes.change),
            Command.DELAY_FIND: (DelayFind, finder.find),
            Command.DELAY_COUNT: (DelayCountQuery, finder.count),
            Command.DELAY_LEDGER: (DelayLedgerQuery, finder.ledger),
        }

    def add(self, command: Command, hot: Hot) -> None:
        """One more line of the table: a part that answers whenever it is ready."""
        self._hot[command] = hot

    def route(self, peer: Peer, frame: Frame) -> None:
        command = frame.command
        if frame.flags & Flag.ONE_WAY and command != Command.REPLICATED:
            raise ProtocolError(f"{Command(command).name} needs an answer")
        if self.stopping and command not in _LAST_WORDS:
            raise Unavailable("the delay server is stopping; connect again in a moment")
        hot = self._hot.get(command)
        if hot is not None:
            hot(peer, frame)
            return
        if command == Command.STATUS:
            answer = self._status(unpack(frame.payload, StatusQuery))
            peer.answer(command, frame.correlation, pack(answer))
            return
        slow = self._slow.get(command)
        if slow is None:
            raise BadRequest(
                f"a delay server does not answer {Command(command).name}; ask a broker"
            )
        self._answering.begin(peer, frame, slow[1](unpack(frame.payload, slow[0])))

    async def finish(self) -> None:
        """Wait for what has begun."""
        await self._answering.finish()
