"""Requests that take time: each becomes a task that answers its peer when the work is done.

The tasks are owned here, count against their peer's bound while they run, and are waited for at the
end; those that only wait for something to happen are given up then. An error of ours is the answer;
anything else is a bug, logged here and told without details. Who wants no answer gets none.
With `StuckRequests` those who asked are told when the work cannot end at present; it goes on all
the same.
"""

import asyncio
from collections.abc import Awaitable

from ternmq.core.errors import TernError
from ternmq.core.units import KIB
from ternmq.rpc.bug_log import BUGS
from ternmq.rpc.peer import Peer
from ternmq.rpc.stuck_requests import StuckRequests
from ternmq.wire.frame import Frame
from ternmq.wire.numbers import Flag
from ternmq.wire.record import Record, pack

TASK_SIZE = 4 * KIB  # What a request that takes time counts as, besides its payload.


class _Asked:
    """One request; answered once, or not at all."""

    __slots__ = ("command", "correlation", "open", "peer")

    def __init__(self, peer: Peer, frame: Frame) -> None:
        self.peer = peer
        self.command = frame.command
        self.correlation = frame.correlation
        self.open = not frame.flags & Flag.ONE_WAY

    def answer(self, record: Record) -> None:
        if self.open:
            self.open = False
            self.peer.answer(self.command, self.correlation, pack(record))

    def fail(self, error: TernError) -> None:
        if self.open:
            self.open = False
            self.peer.fail(self.command, self.correlation, error)


class PendingRequests:
    """What a server has begun and not answered yet."""

    def __init__(self, stuck: StuckRequests | None = None) -> None:
        self._stuck = stuck
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()

    def begin(
        self, peer: Peer, frame: Frame, working: Awaitable[Record], *, waits: bool = False
    ) -> None:
        """Answer the frame with what the work returns or raises; `waits`: for news."""
        asked = _Asked(peer, frame)
        size = len(frame.payload) + TASK_SIZE
        task = asyncio.get_running_loop().create_task(self._answer(asked, size, working))
        if self._stuck is not None:
            self._stuck.watch(task, asked.fail)
        tasks = self._waiting if waits else self._tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def finish(self) -> None:
        """Wait for what has begun."""
        for task in list(self._waiting):
            task.cancel()
        if self._tasks or self._waiting:
            await asyncio.wait([*self._tasks, *self._waiting])

    async def _answer(self, asked: _Asked, size: int, working: Awaitable[Record]) -> None:
        asked.peer.hold(size)
        try:
            asked.answer(await working)
        except TernError as error:
            asked.fail(error)
        except Exception as bug:
            BUGS.report(bug, command=asked.command)
            asked.fail(TernError("the server failed to handle this request; its log says why"))
        finally:
            asked.peer.release(size)
