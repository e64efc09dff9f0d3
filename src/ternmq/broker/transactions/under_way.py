"""What is on its way to the disk about each transaction: its half batches, and its end.

A transaction has one end, and it comes behind everything that was staged before. So whoever has
something to say about one that is busy waits (`settled`) and looks again. Callbacks are told on
the loop when their batch is safe, after it is no longer on its way.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from ternmq.batch.half import DETACHED_NAME_AT, detached_key
from ternmq.broker.log.commit import Committer, OnAppended
from ternmq.core.errors import TernError
from ternmq.storage.log.append import Append

HalfKey = tuple[tuple[int, int], int]
"""Producer and its number of the first row: which batch this is."""


class StoredHalf(Protocol):
    """Waits until a half batch, or a decision, is safe; `rpc.pending_requests.OpenRequest`."""

    def hold(self, size: int, /) -> None: ...

    def answer(self, make: Callable[[], Any], /) -> None: ...

    def fail(self, error: TernError, /) -> None: ...


class SafeHalf:
    """Such a waiting as a future, for a task."""

    __slots__ = ("future",)

    def __init__(self, future: "asyncio.Future[Any]") -> None:
        self.future = future

    def hold(self, size: int, /) -> None:
        """The task counts already."""

    def answer(self, make: Callable[[], Any], /) -> None:
        try:
            self.future.set_result(make())
        except Exception as bug:
            self.future.set_exception(bug)

    def fail(self, error: TernError, /) -> None:
        self.future.set_exception(type(error)(error.message, **error.details))


class TransactionsUnderWay:
    """By the key of a transaction (`HalfInfo.key`)."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._new_future = asyncio.get_running_loop().create_future
        self._staging: dict[bytes, dict[HalfKey, asyncio.Future[None]]] = {}
        self._ending: dict[bytes, asyncio.Future[None]] = {}

    def busy(self, key: bytes, batch: HalfKey | None = None) -> bool:
        """Has something about it to be waited for? Before `batch` is staged: its end, or the same
        batch; before its end anything."""
        if batch is None:
            return key in self._staging or key in self._ending
        return key in self._ending or batch in self._staging.get(key, ())

    def producers(self, key: bytes) -> set[tuple[int, int]]:
        """Of what is being staged."""
        return {producer for producer, _ in self._staging.get(key, ())}

    async def arrived(self, name: str) -> None:
        """Wait for what is on its way to the disk under this name now, not for what comes."""
        suffix = detached_key(name, 0)[DETACHED_NAME_AT:]
        waiting = [
            done
            for key, batches in self._staging.items()
            if key[:1] == b"D" and key[DETACHED_NAME_AT:] == suffix
            for done in batches.values()
        ]
        if waiting:
            await asyncio.wait(waiting)

    async def settled(self, key: bytes) -> None:
        """Wait until nothing about this transaction is on its way to the disk."""
        while True:
            waiting = list(self._staging.get(key, {}).values())
            if key in self._ending:
                waiting.append(self._ending[key])
            if not waiting:
                return
            await asyncio.wait(waiting)

    def stage(self, key: bytes, batch: HalfKey, append: Append, on_done: OnAppended) -> None:
        """Append a half batch."""
        self._staging.setdefault(key, {})[batch] = self._new_future()
        self._committer.append(append, partial(self._staged, key, batch, on_done))

    def _staged(
        self,
        key: bytes,
        batch: HalfKey,
        on_done: OnAppended,
        append: Append,
        error: TernError | None,
    ) -> None:
        left = self._staging[key]
        done = left.pop(batch)
        if not left:
            del self._staging[key]
        done.set_result(None)
        on_done(append, error)

    def decide(self, keys: list[bytes], append: Append, on_done: OnAppended) -> None:
        """Append a decision about these."""
        done = self._new_future()
        for key in keys:
            self._ending[key] = done
        self._committer.append(append, partial(self._ended, keys, done, on_done))

    def _ended(
        self,
        keys: list[bytes],
        done: asyncio.Future[None],
        on_done: OnAppended,
        append: Append,
        error: TernError | None,
    ) -> None:
        for key in keys:
            del self._ending[key]
        done.set_result(None)
        on_done(append, error)

    async def decided(self, keys: list[bytes], append: Append) -> None:
        """Append a decision and wait until it is safe."""
        safe = self._new_future()

        def on_done(_: Append, error: TernError | None) -> None:
            if error is None:
                safe.set_result(None)
            else:
                safe.set_exception(type(error)(error.message, **error.details))

        self.decide(keys, append, on_done)
        await asyncio.shield(safe)
