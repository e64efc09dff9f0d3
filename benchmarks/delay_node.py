"""What the delay server's figures share: a node for each, a client's run, what a broker has."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.own import in_process
from benchmarks.peers.ternmq import TernPeer

__all__ = ["Fields", "a_node", "in_process", "run", "stored"]

POLL_S = 0.005
Fields = dict[str, Any]


@contextmanager
def a_node(settings: Mapping[str, str] | None = None) -> Iterator[tuple[TernPeer, Path]]:
    """`tern up` with flush = sync, with these settings in its environment."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        node = TernPeer(flush="sync")
        os.environ.update(settings or {})
        try:
            node.start(Path(directory))
            yield node, Path(directory)
        finally:
            os.environ.clear()
            os.environ.update(before)
            node.stop()


def run(url: str, work: Callable[[Any], Any]) -> Any:
    """Run `work(mq)` on a loop of its own."""
    import uvloop

    import ternmq

    async def whole() -> Any:
        async with ternmq.connect(url, app="bench", delivery_timeout=600) as mq:
            return await work(mq)

    return uvloop.run(whole())


def stored(url: str, topic: str, until: int, deadline: float) -> list[tuple[float, int]]:
    """(time, messages in the broker) whenever that grew, until all are there."""

    async def work(mq: Any) -> list[tuple[float, int]]:
        seen: list[tuple[float, int]] = []
        give_up = time.time() + deadline
        while time.time() < give_up:
            [status] = await mq.admin.broker_status([topic])
            end = status.topics[0].end if status.topics else 0
            if end != (seen[-1][1] if seen else 0):
                seen.append((time.time(), end))
            if end >= until:
                break
            await asyncio.sleep(POLL_S)
        return seen

    return list(run(url, work))
