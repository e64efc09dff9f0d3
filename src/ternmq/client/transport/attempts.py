"""Something that is tried until it works: how long to wait between attempts, and when to give up.

One object counts the failures in a row of one call. `failed` waits before the next attempt, or
raises the error where another attempt cannot help or the time is over; `wait` only waits, for what
is tried for as long as the client runs. Not used where the end of the time is an answer and no
error (`confirming/confirm.py`), nor for batches, which wait without a task of their own
(`producing/sender.py`). Requests that a broker recognises when they come again:
`retrying_request.py`.
"""

import asyncio
from math import inf

from ternmq.client.transport.link import Link, back_off
from ternmq.core.errors import TernError


class Attempts:
    """Failures in a row."""

    __slots__ = ("_give_up_at", "_link", "_loop", "failures")

    def __init__(self, within: float = inf, link: Link | None = None) -> None:
        """`within`: seconds from now after which a failure is final. `link`: to the server that is
        tried; news of where it is end the waiting."""
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._give_up_at = self._loop.time() + within
        self.failures = 0

    async def failed(self, error: TernError) -> None:
        """Wait for the next attempt; raises `error` if there shall be none."""
        if not error.retryable or self._loop.time() > self._give_up_at:
            raise error
        await self.wait()

    async def wait(self, at_least: float = 0.0) -> None:
        """Wait for the next attempt, whatever went wrong."""
        self.failures += 1
        pause = max(at_least, back_off(self.failures))
        await (asyncio.sleep(pause) if self._link is None else self._link.rest(pause))

    def worked(self) -> None:
        self.failures = 0
