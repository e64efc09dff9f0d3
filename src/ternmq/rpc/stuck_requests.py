"""Requests that have begun and cannot end at present: their clients are told why, in time.

A decision that is written and not safe elsewhere can neither be answered nor taken back. What was
begun goes on; only the answer is given up (`tell`), before the client's own time is over, and only
while it is known what everything waits for (`stuck`). A request that is merely slow goes on.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any

from ternmq.core.errors import TernError, Unavailable
from ternmq.core.lifecycle import Pulse

WITHIN_S = 4.0
"""A client gives a request 5 s."""
LOOK_S = 0.25

Tell = Callable[[TernError], None]


class StuckRequests:
    """What a server has begun, by when."""

    def __init__(self, stuck: Callable[[], str | None]) -> None:
        """`stuck` says what everything waits for, and what to do about it, or None."""
        self._stuck = stuck
        self._watched: dict[Hashable, tuple[float, Tell]] = {}

    def watch(self, waiting: "asyncio.Future[Any]", tell: Tell) -> None:
        """If this is not done in time and it is known why, the caller gets the reason; once."""
        self.begin(waiting, tell)
        waiting.add_done_callback(self.end)

    def begin(self, request: Hashable, tell: Tell) -> None:
        """Watch it until its `end`, which its owner tells."""
        self._watched[request] = (asyncio.get_running_loop().time(), tell)

    def end(self, request: Hashable) -> None:
        self._watched.pop(request, None)

    async def run(self, pulse: Pulse) -> None:
        """Look after them, forever."""
        loop = asyncio.get_running_loop()
        while True:
            await pulse.until(lambda: bool(self._watched), after_s=LOOK_S)
            self.look(loop.time())

    def look(self, now: float) -> None:
        why = self._stuck() if self._watched else None
        if why is None:
            return
        for waiting, (since, tell) in list(self._watched.items()):
            if now - since < WITHIN_S:
                return  # Later ones have waited less.
            del self._watched[waiting]
            tell(
                Unavailable(
                    f"begun, and not safe yet, so there is no answer: {why}. It counts by itself "
                    "when that is over"
                )
            )
