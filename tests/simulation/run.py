"""`make sim`: many seeds of the cluster simulation on all cores; or one of them, told in full.

    python -m tests.simulation.run --seeds 100000          # 0 to 99,999
    python -m tests.simulation.run --seeds 1000 --first 5000 --jobs 2
    python -m tests.simulation.run --replay 4711           # that one, with every log event

Progress goes to stderr. A failing seed is printed with its faults and the command that replays it;
the exit status is 1 then. The same seed gives the same events, whatever else runs.
"""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NamedTuple

from tests.simulation.cluster.cluster import simulate

CHUNK = 20
TELL_EVERY_S = 5.0


class Part(NamedTuple):
    """What some seeds came to."""

    seeds: int
    events: int
    messages: int
    faults: int
    seconds: float
    failed: list[tuple[int, str]]


def run_some(first: int, end: int) -> Part:
    """These seeds, one after the other; in a process of the pool."""
    events = messages = faults = 0
    seconds = 0.0
    failed: list[tuple[int, str]] = []
    for seed in range(first, end):
        try:
            outcome = simulate(seed, hashed=False)
        except Exception as error:  # A bug of the simulation itself is a failing seed too.
            failed.append((seed, str(error) or repr(error)))
            continue
        events += outcome.events
        messages += outcome.messages
        faults += len(outcome.faults)
        seconds += outcome.seconds
    return Part(end - first, events, messages, faults, seconds, failed)


def run_all(first: int, count: int, jobs: int) -> int:
    """All seeds; returns how many failed."""
    began = told = time.monotonic()
    total = Part(0, 0, 0, 0, 0.0, [])
    starts = range(first, first + count, CHUNK)
    with ProcessPoolExecutor(jobs) as pool:
        parts = [pool.submit(run_some, low, min(low + CHUNK, first + count)) for low in starts]
        for done in as_completed(parts):
            part = done.result()
            for seed, story in part.failed:
                print(f"FAILED seed {seed}\n{story}\n", flush=True)  # noqa: T201
            total = Part(*(a + b for a, b in zip(total, part, strict=True)))  # type: ignore[operator]
            if time.monotonic() - told > TELL_EVERY_S:
                told = time.monotonic()
                print(_said(total, count, told - began), file=sys.stderr, flush=True)  # noqa: T201
    print(_said(total, count, time.monotonic() - began))  # noqa: T201
    return len(total.failed)


def _said(total: Part, count: int, took: float) -> str:
    return (
        f"{total.seeds} of {count} seeds, {len(total.failed)} failed: {total.faults} faults, "
        f"{total.messages} messages, {total.events} events, {total.seconds / 3600:.1f} hours of "
        f"cluster time in {took:.0f} s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--replay", type=int, help="one seed, with everything that happens")
    options = parser.parse_args()
    if options.replay is not None:
        print(simulate(options.replay, print))  # noqa: T201
        return 0
    return 1 if run_all(options.first, options.seeds, options.jobs) else 0


if __name__ == "__main__":
    sys.exit(main())
