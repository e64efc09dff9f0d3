"""What handing out costs: filters, order, failing handlers, a retry storm. Ratios in the same run.

Each measurement stores messages first and then lets one consumer process take them. A tag filter
that drops 99 % is compared with no filter on the same topic, by the broker's CPU for storing and
handing out together.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks.own import Fields, _run, in_process
from benchmarks.peers.meter import own_cpu_seconds
from benchmarks.peers.process import tree_cpu_seconds
from benchmarks.storm import storm

BODY = b"x" * 100
CALLS = 8
PREFETCH = 20_000
TARGETS = {
    "tag filter, broker CPU beside none": ("at most", 1.2),
    "SQL filter, messages/s": ("at least", 200_000),
    "SQL filter, batches of 1, messages/s": ("at least", 200_000),
    "ordered, 10,000 keys, messages/s": ("at least", 100_000),
    "1 % failing handlers, throughput beside none": ("at least", 0.9),
    "1 % failing bare loop, throughput beside none": ("at least", 0.9),
    "storm, broker bytes per waiting row": ("at most", 250),
    "storm, other group's send p99 ms": ("at most", 100),
    "storm, new messages of the group, p99 ms": ("at most", 1_000),
}


def fill_load(url: str, topic: str, count: int, batch: int, keys: int) -> None:
    """Every hundredth message has the tag 'wanted' and amount 99; others 'other' and 0 to 98."""
    from ternmq import Outgoing

    async def work(mq: Any) -> None:
        await mq.admin.create_topic(topic)
        left = count // batch

        def messages(first: int) -> list[Any]:
            return [
                Outgoing(
                    body=BODY,
                    tag="wanted" if row % 100 == 99 else "other",
                    properties=None if keys else {"amount": row % 100, "region": "north"},
                    order_key=f"k{row % keys}" if keys else None,
                )
                for row in range(first, first + batch)
            ]

        async def caller() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await mq.send_many(topic, messages(left * batch))

        await asyncio.gather(*(caller() for _ in range(CALLS if batch > 1 else 512)))

    _run(url, work)


def take_load(url: str, pid: int, topic: str, wanted: int, options: dict[str, Any]) -> Fields:
    """Take batches and ack them until so many are handled."""

    async def work(mq: Any) -> Fields:
        meter = Meter(pid)
        done = 0
        async with mq.consumer(topic, **options) as consumer:
            async for batch in consumer.batches():
                batch.ack()
                done += len(batch)
                if done >= wanted:
                    break
            return meter.read()

    return dict(_run(url, work))


def handle_load(url: str, pid: int, topic: str, wanted: int, options: dict[str, Any]) -> Fields:
    """A handler per message; where `failing` says so every n-th message fails once. The handler
    looks at the same fields either way, so that only failing makes the difference."""
    failing = options.pop("failing")
    every, chosen = failing or 100, 0 if failing else -1

    async def work(mq: Any) -> Fields:
        meter = Meter(pid)
        done = 0
        async with mq.consumer(topic, **options) as consumer:
            async for message in consumer:
                if message.sequence % every == chosen and message.attempt == 1:
                    message.retry(after=0.05)
                    continue
                message.ack()
                done += 1
                if done >= wanted:
                    break
            return meter.read()

    return dict(_run(url, work))


def app_load(url: str, pid: int, topic: str, wanted: int, options: dict[str, Any]) -> Fields:
    """Handlers as applications write them: called by `App`, acked when they return. Where `failing`
    says so every n-th message raises once; its error and traceback travel, and a line is logged."""
    import logging

    import structlog
    import uvloop

    from ternmq import App

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    failing = options.pop("failing")
    every, chosen = failing or 100, 0 if failing else -1

    async def whole() -> Fields:
        app, finished, done = App(url, app="bench"), asyncio.Event(), 0

        @app.subscriber(topic, retry_after=0.05, **options)
        async def handler(message: Any) -> None:
            nonlocal done
            if message.sequence % every == chosen and message.attempt == 1:
                raise ValueError("this one fails")
            done += 1
            if done >= wanted:
                finished.set()

        meter = Meter(pid)
        async with app:
            await finished.wait()
            return meter.read()

    return dict(uvloop.run(whole()))


class Meter:
    """Time and CPU from now on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._broker, self._client = tree_cpu_seconds([pid]), own_cpu_seconds()
        self._began = time.monotonic()

    def read(self) -> Fields:
        return {
            "took_s": time.monotonic() - self._began,
            "broker_cpu_s": tree_cpu_seconds([self._pid]) - self._broker,
            "client_cpu_s": own_cpu_seconds() - self._client,
        }


def fill(url: str, topic: str, count: int, batch: int, keys: int = 0) -> None:
    in_process(fill_load, url, topic, count, batch, keys, deadline=600.0)


def take(url: str, pid: int, topic: str, wanted: int, **options: Any) -> Fields:
    options = {"prefetch": PREFETCH, **options}
    return dict(in_process(take_load, url, pid, topic, wanted, options, deadline=600.0))


def handle(
    url: str, pid: int, topic: str, wanted: int, load: Any = handle_load, **options: Any
) -> Fields:
    return dict(in_process(load, url, pid, topic, wanted, options, deadline=600.0))


def filters(url: str, pid: int, count: int) -> Fields:
    """The same messages with no filter, by tag, by a condition; and stored one by one."""
    before = tree_cpu_seconds([pid])
    fill(url, "filtered", count, 1_000)
    stored = tree_cpu_seconds([pid]) - before
    fill(url, "singles", count // 10, 1)
    plain = take(url, pid, "filtered", count, group="plain")
    tagged = take(url, pid, "filtered", count // 100, group="tagged", tag="wanted")
    chosen = take(url, pid, "filtered", count // 100, group="chosen", filter="amount > 98")
    singles = take(url, pid, "singles", count // 1000, group="chosen", filter="amount > 98")
    return {
        "plain": plain,
        "tagged": tagged,
        "chosen": chosen,
        "singles": singles,
        "count": count,
        "stored_broker_cpu_s": stored,
        "tag filter, broker CPU beside none": (stored + tagged["broker_cpu_s"])
        / (stored + plain["broker_cpu_s"]),
        "SQL filter, messages/s": count / chosen["took_s"],
        "SQL filter, batches of 1, messages/s": count / 10 / singles["took_s"],
    }


def order(url: str, pid: int, count: int, keys: int = 10_000) -> Fields:
    fill(url, "ordered", count, 1_000, keys)
    taken = take(url, pid, "ordered", count, group="ordered", ordered=True)
    return {**taken, "count": count, "ordered, 10,000 keys, messages/s": count / taken["took_s"]}


def failures(url: str, pid: int, count: int) -> Fields:
    """By handlers of an app, and by a bare loop that does nothing but ack, where a failure weighs
    most. The better of three, each way in turn: the machine is shared."""
    fill(url, "failing", count, 1_000)
    fill(url, "failing-app", count // 10, 1_000)
    found: Fields = {"count": count}
    for name, topic, load in (
        ("handlers", "failing-app", app_load),
        ("bare loop", "failing", handle_load),
    ):
        wanted = count // 10 if load is app_load else count
        fine, bad = [], []
        for number in range(3):
            for runs, group, failing in ((fine, "fine", 0), (bad, "bad", 100)):
                options = {"group": f"{group}-{number}", "failing": failing}
                runs.append(handle(url, pid, topic, wanted, load, **options))
        took = [min(run["took_s"] for run in runs) for runs in (fine, bad)]
        found |= {
            name: {"fine": fine, "bad": bad, "count": wanted},
            f"1 % failing {name}, throughput beside none": took[0] / took[1],
        }
    return found


def measure(url: str, pid: int, *, quick: bool) -> Fields:
    count = 200_000 if quick else 1_000_000
    found = {
        "filters": filters(url, pid, count),
        "order": order(url, pid, count),
        "failures": failures(url, pid, count),
        "storm": storm(url, pid, count),
    }
    return found


def verdicts(found: Fields) -> list[str]:
    """One line per target."""
    figures = {name: value for part in found.values() for name, value in part.items()}
    lines = []
    for name, (side, target) in TARGETS.items():
        value = figures[name]
        met = value <= target if side == "at most" else value >= target
        verdict = "met" if met else "MISSED"
        lines.append(f"{name}: {value:,.2f}; asked: {side} {target:,}; {verdict}")
    return lines


def main() -> None:
    """`python -m benchmarks.delivery [--quick]`: only these."""
    import sys
    import tempfile
    from pathlib import Path

    from benchmarks.peers.ternmq import TernPeer

    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        node = TernPeer(flush="sync")
        node.start(Path(directory))
        try:
            found = measure(node.url(), node.pids()[0], quick="--quick" in sys.argv)
        finally:
            node.stop()
    print("\n".join(verdicts(found)))


if __name__ == "__main__":
    main()
