"""Ends what waits to be sent at its own deadline, whatever stands before it.

Batches wait behind others of their topic, of their order keys, or for a server to be known. Those
others have deadlines of their own, and may have later ones (one-way messages are tried for longer),
so nothing that waits may rely on its turn to come in time. Lines with waiting batches are looked at
ten times a second; what is over is taken out, wherever it stands, and given up: it was never sent,
so its failure is definite. The rest keeps its order.

Belongs to one event loop. Batches under way are the sender's (`producing/sender.py`).
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from ternmq.client.producing.accumulator import Accumulator, OpenBatch
from ternmq.core.lifecycle import Background

SWEEP_S = 0.1

Line = TypeVar("Line", bound=Accumulator)


class Deadlines(Generic[Line]):
    """Lines with waiting batches, swept for those whose time is over."""

    def __init__(
        self,
        deadline: Callable[[OpenBatch], float],
        give_up: Callable[[Line, OpenBatch], None],
        background: Background,
    ) -> None:
        self._sweep_when_due = background.callback(self._sweep)
        self._deadline = deadline
        self._give_up = give_up
        self._lines: dict[Line, None] = {}
        self._loop = asyncio.get_running_loop()
        self._sweeping: asyncio.TimerHandle | None = None

    def watch(self, line: Line) -> None:
        """Something waits in it, or is about to."""
        self._lines[line] = None
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(SWEEP_S, self._sweep_when_due)

    def _sweep(self) -> None:
        self._sweeping = None
        now = self._loop.time()
        lines, self._lines = self._lines, {}
        for line in lines:
            late = [one for one in line.open_batches if self._deadline(one) <= now]
            for open_batch in late:
                line.open_batches.remove(open_batch)
                self._give_up(line, open_batch)
            if line.open_batches:
                self.watch(line)

    def stop(self) -> None:
        """Give up nothing more."""
        if self._sweeping is not None:
            self._sweeping.cancel()
