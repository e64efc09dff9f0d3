"""What OpenTelemetry costs a client: CPU per message without it, switched on, and recording.

One node; single sends of many callers and lists, by a client in this process. Rounds of the three
take turns, so that all see the same machine; the CPU time of this process alone is counted.
`python -m benchmarks.tracing [--quick] [--rounds N] [--count N]`.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

BODY = b"x" * 100
CALLERS = 50
LIST = 1_000
WAYS = ("off", "on, no SDK", "recording")


def switch(way: str) -> None:
    from opentelemetry.sdk.trace import TracerProvider

    from ternmq.otel.instrumentor import TernInstrumentor

    TernInstrumentor().uninstrument()
    if way != "off":
        provider = TracerProvider() if way == "recording" else None
        TernInstrumentor().instrument(tracer_provider=provider)


async def singles(mq: Any, count: int) -> None:
    async def caller() -> None:
        for _ in range(count // CALLERS):
            await mq.send("bench", BODY)

    await asyncio.gather(*(caller() for _ in range(CALLERS)))


async def lists(mq: Any, count: int) -> None:
    for _ in range(count // LIST):
        await mq.send_many("bench", [BODY] * LIST)


async def measure(url: str, options: argparse.Namespace) -> None:
    import ternmq

    async with ternmq.connect(url, app="bench") as mq:
        for name, load, count in (
            ("single sends", singles, options.count),
            ("lists of 1,000", lists, options.count * 20),
        ):
            took: dict[str, list[float]] = {way: [] for way in WAYS}
            await load(mq, count // 4)
            for _ in range(options.rounds):
                for way in WAYS:
                    switch(way)
                    began = time.process_time()
                    await load(mq, count)
                    took[way].append((time.process_time() - began) / count * 1e6)
            switch("off")
            for way in WAYS:
                print(f"{name:16} {way:12} {statistics.median(took[way]):8.3f} us CPU a message")


def main() -> None:
    from benchmarks.peers.ternmq import TernPeer

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--count", type=int, default=20_000)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.count = 3, 5_000
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        node = TernPeer(flush="sync")
        node.start(Path(directory))
        try:
            asyncio.run(measure(node.url(), options))
        finally:
            node.stop()


if __name__ == "__main__":
    main()
