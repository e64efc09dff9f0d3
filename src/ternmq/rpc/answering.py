"""Requests that take time: each becomes a task that answers its peer when the work is done.

The tasks are owned here, count against their peer's bound while they run, and are waited for at the
end; those that only wait for something to happen are given up then. An error of ours is the answer;
anything else is a bug, logged here and told without details. Who wants no answer gets none.
"""

import asyncio
from collections.abc import Awaitable

from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.core.units import KIB
from ternmq.rpc.peer import Peer
from ternmq.wire.commands import Flag, Record, pack
from ternmq.wire.frame import Frame

TASK_SIZE = 4 * KIB  # What a request that takes time counts as, besides its payload.

log = get_logger()


class Answering:
    """What a server has begun and not answered yet."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()

    def begin(
        self, peer: Peer, frame: Frame, working: Awaitable[Record], *, waits: bool = False
    ) -> None:
        """Answer the frame with what the work returns or raises; `waits`: for news."""
        task = asyncio.get_running_loop().create_task(self._answer(peer, frame, working))
        tasks = self._waiting if waits else self._tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def finish(self) -> None:
        """Wait for what has begun."""
        for task in list(self._waiting):
            task.cancel()
        if self._tasks or self._waiting:
            await asyncio.wait([*self._tasks, *self._waiting])

    async def _answer(self, peer: Peer, frame: Frame, working: Awaitable[Record]) -> None:
        size = len(frame.payload) + TASK_SIZE
        wanted = not frame.flags & Flag.ONE_WAY
        peer.hold(size)
        try:
            answer = await working
            if wanted:
                peer.answer(frame.command, frame.correlation, pack(answer))
        except TernError as error:
            if wanted:
                peer.fail(frame.command, frame.correlation, error)
        except Exception:
            log.exception("request failed by a bug", command=frame.command)
            if wanted:
                sorry = TernError("the server failed to handle this request; its log says why")
                peer.fail(frame.command, frame.correlation, sorry)
        finally:
            peer.release(size)
