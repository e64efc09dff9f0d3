"""Requests that take time: each becomes a task that answers its peer when the work is done.

The tasks are owned here, count against their peer's bound while they run, and are waited for at the
end. An error of ours is the answer; anything else is a bug, logged here and told without details.
"""

import asyncio
from collections.abc import Awaitable

from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.core.units import KIB
from ternmq.rpc.peer import Peer
from ternmq.wire.commands import Record, pack
from ternmq.wire.frame import Frame

TASK_SIZE = 4 * KIB  # What a request that takes time counts as, besides its payload.

log = get_logger()


class Answering:
    """What a server has begun and not answered yet."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, peer: Peer, frame: Frame, working: Awaitable[Record]) -> None:
        """Answer the frame with what the work returns or raises."""
        task = asyncio.get_running_loop().create_task(self._answer(peer, frame, working))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Wait for what has begun."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _answer(self, peer: Peer, frame: Frame, working: Awaitable[Record]) -> None:
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
