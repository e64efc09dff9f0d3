"""Requests that take time: each becomes a task that answers its peer when the work is done.

What is asked often and waits for nothing but the disk goes without a task (`begin_now`): its
handler answers the request itself when it is called back. What it waits for is told of in any case,
also at the end, so nobody waits for such requests.

The tasks are owned here, count against their peer's bound while they run, and are waited for at the
end. Those that only wait for something to happen are given up then; they count against no bound, so
a crowd of them keeps nobody else waiting, and a peer may have one of each command. An error of ours
is the answer; anything else is a bug, logged here and told without details. Who wants no answer
gets none. With `StuckRequests` those who asked are told when the work cannot end at present; it
goes on all the same.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ternmq.core.errors import OverLimit, TernError
from ternmq.core.units import KIB
from ternmq.rpc.bug_log import BUGS
from ternmq.rpc.peer import Peer
from ternmq.rpc.stuck_requests import StuckRequests
from ternmq.wire.frame import Frame
from ternmq.wire.numbers import Command, Flag
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
            packed = pack(record)  # Before it counts as answered: what cannot be sent is told.
            self.open = False
            self.peer.answer(self.command, self.correlation, packed)

    def fail(self, error: TernError) -> None:
        if self.open:
            self.open = False
            self.peer.fail(self.command, self.correlation, error)


class OpenRequest:
    """A request that its handler answers itself, at once or when it is called back."""

    __slots__ = ("_asked", "_held", "_stuck")

    def __init__(self, asked: _Asked, stuck: StuckRequests | None) -> None:
        self._asked = asked
        self._stuck = stuck
        self._held = 0

    def hold(self, size: int) -> None:
        """The answer takes a while: until then this counts against the bound of its peer."""
        self._held = size + TASK_SIZE
        self._asked.peer.hold(self._held)
        if self._stuck is not None:
            self._stuck.begin(self, self._asked.fail)

    def answer(self, make: Callable[[], Record]) -> None:
        """Answer with what this returns or raises; happens once."""
        asked = self._asked
        try:
            asked.answer(make())
        except TernError as error:
            asked.fail(error)
        except Exception as bug:
            BUGS.report(bug, command=asked.command)
            asked.fail(TernError("the server failed to handle this request; its log says why"))
        finally:
            self._release()

    def fail(self, error: TernError) -> None:
        self._asked.fail(error)
        self._release()

    def _release(self) -> None:
        held, self._held = self._held, 0
        if held:
            if self._stuck is not None:
                self._stuck.end(self)
            self._asked.peer.release(held)


StartRequest = Callable[[OpenRequest], Awaitable[Record] | None]
"""Answers the request, now or later; or returns work whose result is the answer."""


class PendingRequests:
    """What a server has begun and not answered yet."""

    def __init__(self, stuck: StuckRequests | None = None) -> None:
        self._stuck = stuck
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[tuple[Peer, int], asyncio.Task[None]] = {}

    def begin(
        self, peer: Peer, frame: Frame, working: Awaitable[Record], *, waits: bool = False
    ) -> None:
        """Answer the frame with what the work returns or raises; `waits`: for news."""
        asked = _Asked(peer, frame)
        size = 0 if waits else len(frame.payload) + TASK_SIZE
        task = asyncio.get_running_loop().create_task(self._answer(asked, size, working))
        if self._stuck is not None:
            self._stuck.watch(task, asked.fail)
        if waits:
            self._waiting[peer, frame.command] = task
            task.add_done_callback(lambda _: self._waiting.pop((peer, frame.command), None))
        else:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def begin_now(self, peer: Peer, frame: Frame, start: StartRequest) -> None:
        """Begin without a task; what `start` raises is the answer. It may ask for a task."""
        working = start(OpenRequest(_Asked(peer, frame), self._stuck))
        if working is not None:
            self.begin(peer, frame, working)

    def check_wait(self, peer: Peer, command: int) -> None:
        """Raises `OverLimit` while this peer waits for an answer to the same command."""
        if (peer, command) in self._waiting:
            raise OverLimit(
                f"{Command(command).name} waits for news already on this connection; ask again "
                "when it is answered"
            )

    async def finish(self) -> None:
        """Wait for what has begun."""
        waiting = list(self._waiting.values())
        for task in waiting:
            task.cancel()
        if self._tasks or waiting:
            await asyncio.wait([*self._tasks, *waiting])

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
