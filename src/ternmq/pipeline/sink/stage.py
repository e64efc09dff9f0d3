"""What one task of the sink does: stage its rows, several batches under way, as its own attempt.

The attempt's number is drawn anew for every try of every task, so nothing that is left of an
earlier try, or of a driver that died, can be mixed up with it. A task that finds its name committed
(its micro-batch is run again) stages nothing. Nothing here is visible before `commit` publishes it.
"""

import asyncio
import itertools
import os
import secrets
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

from ternmq.batch.encoder import Columns
from ternmq.client.transactions.detached import Detached, StagedRows
from ternmq.core.errors import TernError
from ternmq.pipeline.cluster import ClusterView
from ternmq.sync.loop_thread import loop_thread

UNDER_WAY_MAX = 4
BATCHES_MAX = 900
"""Batches of one attempt, below the broker's limit; a longer task takes another number."""

_numbers: dict[int, Iterator[int]] = {}


def new_attempt() -> int:
    """A number that this process has not used and that no other is likely to have."""
    numbers = _numbers.setdefault(os.getpid(), itertools.count(secrets.randbits(32)))
    return next(numbers) % 2**32


@dataclass
class TaskDone(WriterCommitMessage):
    """What the driver must know to commit a task's rows."""

    name: str
    groups: list[str]
    """All broker groups, the one that decides first."""
    partition: int
    group: str = ""
    attempts: list[int] = field(default_factory=list)
    """In the order of their rows; none where there was nothing to stage."""
    rows: int = 0
    committed: bool = False
    """The name was committed before."""


class Stage:
    """The rows of one try of one task."""

    def __init__(self, cluster: ClusterView, done: TaskDone) -> None:
        self._cluster = cluster
        self.done = done
        self._attempt: Detached | None = None
        self._batches = 0
        self._under_way: deque[Future[StagedRows]] = deque()
        if done.group != done.groups[0]:
            done.committed = cluster.look(done.name, done.groups[0]).state == "committed"

    def add(self, topic: str, columns: Columns, delay_server: str = "") -> None:
        """Stage one batch; waits while too many are under way. Rows that are for later name the
        delay server that takes them once they are committed."""
        if self.done.committed:
            return
        if self._attempt is None or self._batches >= BATCHES_MAX:
            self._begin()
        assert self._attempt is not None
        self._batches += 1
        sending = self._attempt.send_columns(topic, columns, later=delay_server)
        self._under_way.append(asyncio.run_coroutine_threadsafe(sending, loop_thread().loop))
        self._wait(UNDER_WAY_MAX - 1)

    def finish(self) -> TaskDone:
        """Wait until everything is safe."""
        self._wait(0)
        if self.done.committed:
            self.done.attempts, self.done.rows = [], 0
        return self.done

    def give_up(self) -> None:
        """Clean up after an error if that is possible now; else it expires."""
        for sending in self._under_way:
            sending.cancel()
        if self.done.attempts:
            with suppress(TernError):
                done = self.done
                self._cluster.abort(done.name, done.group, done.attempts, [])

    def _begin(self) -> None:
        number = new_attempt()
        self._attempt = self._cluster.detached(self.done.name, number, self.done.group)
        self._batches = 0
        self.done.attempts.append(number)

    def _wait(self, left: int) -> None:
        while len(self._under_way) > left:
            staged = self._under_way.popleft().result()
            self.done.rows += staged.rows
            self.done.committed = self.done.committed or staged.committed
