"""The event loop of one simulated process: virtual time, no threads, order decided by the seed.

A process has one `NodeLoop`; the world decides whose loop turns next. In one turn everything that
was ready when it began runs, as in asyncio's own loop; between two turns a little time passes.
Timers, executors, workers and sockets are events of the world, so a process that is paused or dead
simply has no turns. Nothing here looks at a real clock, starts a thread or opens a socket.
"""

import asyncio
from asyncio.events import _set_running_loop as set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.world.machine import Process

DEFAULT_THREADS = 8


class Handle(asyncio.Handle):
    """asyncio's own, and cheaper: it never asks the loop whether somebody debugs."""

    __slots__ = ("due",)
    due: float

    def __init__(
        self, callback: Callable[..., Any], args: Any, loop: Any, context: Context | None
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback: Any = callback
        self._args: Any = args
        self._cancelled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None

    def when(self) -> float:
        return self.due


class NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], number: int, **options: Any) -> None:
        self.number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self.number


class NumberedFuture(asyncio.Future[Any]):
    """The same for futures."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self.number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class Lane:
    """Threads that take jobs from one queue."""

    def __init__(self, loop: "NodeLoop", threads: int, name: str) -> None:
        self._loop = loop
        self._free = threads
        self._name = name
        self._jobs: deque[Callable[[], Any]] = deque()
        self.idle: asyncio.Future[None] | None = None

    def put(self, job: Callable[[], Any]) -> None:
        self._jobs.append(job)
        self._next()

    async def close(self) -> None:
        if self._jobs or not self._free:
            self.idle = self._loop.create_future()
            await self.idle

    def _next(self) -> None:
        if self._free and self._jobs:
            self._free -= 1
            job = self._jobs.popleft()
            self._loop.process.later(self._loop.world.pace.wake(), self._name, self._do, job)

    def _do(self, job: Callable[[], Any]) -> None:
        """The job happens at once; what it says is heard when its disk would have been done."""
        process = self._loop.process
        said = self._loop.hear_later()
        process.disk_s = 0.0
        process.run_job(job)
        process.later(process.disk_s, self._name, self._done, said)

    def _done(self, said: list[Handle]) -> None:
        self._free += 1
        self._loop.hear(said)
        if self.idle is not None and not self._jobs and not self.idle.done():
            self.idle.set_result(None)
        self._next()


_Base: Any = asyncio.AbstractEventLoop  # Of its many methods only those that are used are here.


class NodeLoop(_Base):  # type: ignore[misc]
    """What asyncio needs of a loop, and what our code uses of it."""

    def __init__(self, process: "Process") -> None:
        self.process = process
        self.world = process.machine.world
        self._ready: deque[Handle] = deque()
        self._turn_ahead = False
        self._number = 0
        self._said: list[Handle] | None = None
        self._lanes: dict[Any, Lane] = {}
        self.tasks: dict[NumberedTask, None] = {}

    # Turns.

    def wake(self) -> None:
        if not self._turn_ahead and self._ready:
            process = self.process
            if process.alive and not process.machine.paused:
                self._turn_ahead = True
                self.world.turn_soon(self._turn)

    def _turn(self) -> None:
        self._turn_ahead = False
        world, process, ready = self.world, self.process, self._ready
        if not process.alive or process.machine.paused:
            return
        if world.hashed or world.tell is not None:
            world.trace("turn", process.machine.name, len(ready))
        world.current = process
        set_running_loop(self)
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
                    if not process.alive:
                        return
        finally:
            set_running_loop(None)
            world.current = None
        if ready and not self._turn_ahead and not process.machine.paused:
            self._turn_ahead = True
            world.turn_soon(self._turn)

    def discard(self) -> None:
        """The process is dead."""
        self._ready.clear()

    # Callbacks.

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._turn_ahead:
            self.wake()
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Handle:
        if self._said is None:
            return self.call_soon(callback, *args, context=context)
        handle = Handle(callback, args, self, context)
        self._said.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Handle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Handle:
        timer = Handle(callback, args, self, context)
        timer.due = when
        self.world.at(self.process.machine.clock.world_time(when), self._due, timer)
        return timer

    def _due(self, timer: Handle) -> None:
        if not timer._cancelled and self.process.alive:
            self._ready.append(timer)
            self.wake()

    def time(self) -> float:
        return self.process.machine.clock.monotonic()

    # Futures and tasks.

    def create_future(self) -> asyncio.Future[Any]:
        self._number += 1
        return NumberedFuture(self._number, self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        self._number += 1
        task = NumberedTask(coro, self._number, loop=self, **options)
        self.tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)  # type: ignore[call-overload]

    # Threads.

    def run_in_executor(
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()

        def job() -> None:
            try:
                result = func(*args)
            except Exception as error:
                self.call_soon_threadsafe(_settle, future, None, error)
            else:
                self.call_soon_threadsafe(_settle, future, result, None)

        lane = self._lanes.get(executor)
        if lane is None:
            threads = DEFAULT_THREADS if executor is None else executor._max_workers
            lane = self._lanes[executor] = Lane(self, threads, f"thread{len(self._lanes)}")
        lane.put(job)
        return future

    def start_worker(self, name: str) -> Lane:
        """For `core.worker`."""
        return Lane(self, 1, name)

    def hear_later(self) -> list[Handle]:
        """What threads say from here on is kept; `hear` lets it through."""
        self._said = []
        return self._said

    def hear(self, said: list[Handle]) -> None:
        self._ready.extend(said)
        self.wake()

    def end_job(self) -> None:
        self._said = None

    # Sockets.

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_: Any
    ) -> tuple[Any, Any]:
        return await self.world.network.connect(self.process, protocol_factory, host, port)

    async def create_server(
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_: Any
    ) -> Any:
        return self.world.network.listen(self.process, protocol_factory, port)

    # The rest of what asyncio asks.

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self.process.alive

    def is_closed(self) -> bool:
        return not self.process.alive

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.process.alive:
            self.process.broke(context)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
