"""The thread that runs the event loop for blocking callers: one per process.

A fork copies no threads, so a child starts its own at its first call. The thread is a daemon: a
program that ends without closing its clients is not kept alive by it.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from ternmq.core.errors import BadConfig, BadRequest
from ternmq.core.process import new_event_loop

T = TypeVar("T")


class LoopThread:
    """An event loop that runs in the background."""

    def __init__(self) -> None:
        refuse_green_threads()
        self.loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name="ternmq-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it there and wait for its result; an interrupt here cancels it there."""
        if threading.current_thread() is self._thread:
            work.close()
            raise BadRequest(
                "a blocking call inside the client's own thread would wait for itself; "
                "use another thread"
            )
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Run a plain function there and wait for its result."""

        async def work() -> T:
            return function()

        return self.run(work())


def refuse_green_threads() -> None:
    """Where threads were patched into greenlets the loop would share one thread with its callers,
    and the first call wait for ever; so it is refused, with what to write instead."""
    gevent = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched("threading"):
        raise BadConfig(
            "gevent has replaced threads, which ternmq.sync needs: "
            "write gevent.monkey.patch_all(thread=False)"
        )
    eventlet = sys.modules.get("eventlet.patcher")
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        raise BadConfig(
            "eventlet has replaced threads, which ternmq.sync needs: "
            "write eventlet.monkey_patch(thread=False)"
        )


class _Current:
    """The loop thread of this process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """In a forked child: the thread is the parent's, and so may be the lock's state."""
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None

    def get(self) -> LoopThread:
        thread = self._thread
        if thread is None:
            with self._lock:
                thread = self._thread
                if thread is None:
                    thread = self._thread = LoopThread()
        return thread


_current = _Current()
os.register_at_fork(after_in_child=_current.forget)


def loop_thread() -> LoopThread:
    """This process's loop thread, started if need be."""
    return _current.get()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run it on the loop thread and wait for its result."""
    return loop_thread().run(work)


def iterate(items: AsyncIterable[T]) -> Iterator[T]:
    """Go over what the loop thread brings, one step at a time."""
    following = aiter(items)

    async def step() -> T | None:
        return await anext(following, None)

    while (item := run(step())) is not None:
        yield item
