"""From a frame to the part that handles it. A command is one line in one table."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ternmq.core.errors import BadRequest, ProtocolError, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.core.units import KIB
from ternmq.delay.accept import Acceptor
from ternmq.delay.changes import Changes
from ternmq.delay.find import Finder
from ternmq.rpc.peer import Peer
from ternmq.wire import commands as wire
from ternmq.wire.commands import Command, Flag, pack, unpack
from ternmq.wire.delays import DelayChange, DelayCountQuery, DelayFind, DelayLedgerQuery
from ternmq.wire.frame import Frame

log = get_logger()

TASK_SIZE = 4 * KIB  # What a request that takes time counts as, besides its payload.

Slow = Callable[[Any], Awaitable[wire.Record]]


class DelayRouter:
    """Frames in, parts called."""

    def __init__(
        self,
        *,
        acceptor: Acceptor,
        changes: Changes,
        finder: Finder,
        status: Callable[[wire.StatusQuery], wire.Status],
    ) -> None:
        self._acceptor = acceptor
        self._status = status
        self._tasks: set[asyncio.Task[None]] = set()
        self.stopping = False
        self._slow: dict[int, tuple[type[wire.Record], Slow]] = {
            Command.DELAY_CHANGE: (DelayChange, changes.change),
            Command.DELAY_FIND: (DelayFind, finder.find),
            Command.DELAY_COUNT: (DelayCountQuery, finder.count),
            Command.DELAY_LEDGER: (DelayLedgerQuery, finder.ledger),
        }

    def route(self, peer: Peer, frame: Frame) -> None:
        command = frame.command
        if frame.flags & Flag.ONE_WAY:
            raise ProtocolError(f"{Command(command).name} needs an answer")
        if self.stopping:
            raise Unavailable("the delay server is stopping; connect again in a moment")
        if command == Command.PUBLISH:
            self._acceptor.publish(peer, frame)
            return
        if command == Command.STATUS:
            answer = self._status(unpack(frame.payload, wire.StatusQuery))
            peer.answer(command, frame.correlation, pack(answer))
            return
        slow = self._slow.get(command)
        if slow is None:
            raise BadRequest(
                f"a delay server does not answer {Command(command).name}; ask a broker"
            )
        self._start(self._answer_later(peer, frame, slow[1](unpack(frame.payload, slow[0]))))

    async def finish(self) -> None:
        """Wait for what has begun."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _answer_later(
        self, peer: Peer, frame: Frame, working: Awaitable[wire.Record]
    ) -> None:
        size = len(frame.payload) + TASK_SIZE
        peer.hold(size)
        try:
            answer = await working
        except TernError as error:
            peer.fail(frame.command, frame.correlation, error)
        except Exception:
            log.exception("request failed by a bug", command=frame.command)
            sorry = TernError("the server failed to handle this request; its log says why")
            peer.fail(frame.command, frame.correlation, sorry)
        else:
            peer.answer(frame.command, frame.correlation, pack(answer))
        finally:
            peer.release(size)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
