"""Stops a node: the first signal asks, the second one ends it at once, a time limit ends it anyway.

The first SIGTERM or Ctrl-C sets `asked`; the node then leaves its block and every part stops in
order. A second signal, or `STOP_SECONDS_MAX` without an end, ends the process without more ado:
what was acknowledged is safe even then, the next start recovers.
"""

import asyncio
import os
import signal
import threading

from ternmq.cli.terminal.output import note

STOP_SECONDS_MAX = 9.0
EXIT_FORCED = 1


class Stopper:
    """Turns signals into an event that the node waits for."""

    def __init__(self, seconds_max: float = STOP_SECONDS_MAX) -> None:
        self._seconds_max = seconds_max
        self.asked = asyncio.Event()
        self._timer: threading.Timer | None = None

    def install(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)

    def done(self) -> None:
        """The node has stopped; nothing has to be forced any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_signal(self) -> None:
        if self.asked.is_set():
            _force("stopped at once; the next start recovers")
        self.asked.set()
        # A thread, because a loop that hangs would not run its own timer.
        self._timer = threading.Timer(
            self._seconds_max, _force, [f"did not stop within {self._seconds_max:g} s: ended"]
        )
        self._timer.daemon = True
        self._timer.start()


def _force(why: str) -> None:
    note(f"error: {why}")
    os._exit(EXIT_FORCED)
