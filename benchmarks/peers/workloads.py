"""The workloads, the same for every peer: what is done, with how much, and what is reported.

Each workload runs its client in a process of its own (spawned, so nothing leaks from one peer into
the next) and kills it at a hard deadline; a workload that dies becomes a result with a note and a
rate of None, never a crash. Counts are caps: inside them a time box decides, so a slow peer
measures fewer messages for the same time.
"""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.peers.driver import ClientRecipe, Pace, Peer, Result
from benchmarks.peers.meter import Measured, Meter

_spawn = multiprocessing.get_context("spawn")

LATENCY_RATE = 10_000
LATENCY_SECONDS = 2.5
LATENCY_DEADLINE = 15.0
SETTLE_FRACTION = 0.2
"""The first part of a latency run is left out: connections, caches and the JIT are still cold."""
OVERLOADED_MS = 200.0
"""A median above this at 10 k/s is a queue that grows, not a latency."""
FAN_OUT_PROCESSES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How much to measure. `deadline` is when a client is killed, counted from its start."""

    count: int = 1_500_000
    seconds: float = 3.0
    deadline: float = 20.0


@dataclass(slots=True)
class Bench:
    """One peer while it is measured: its client recipe, the server's pids, what was published."""

    peer: Peer
    settings: Settings
    recipe: ClientRecipe
    pids: list[int]
    published: int = field(default=0)

    def result(self, workload: str, **fields: Any) -> Result:
        """A result of this peer."""
        return Result(
            name=self.peer.name, workload=workload, durability=self.peer.durability, **fields
        )

    def rated(self, workload: str, measured: Measured, **fields: Any) -> Result:
        """A result with rate and CPU from what a meter saw."""
        done, took = measured.done, measured.ended - measured.began
        if not done:
            return self.result(workload, rate=None, note="nothing done inside the time box")
        return self.result(
            workload,
            rate=done / took,
            client_cpu_s_per_million=measured.client_cpu / done * 1e6,
            broker_cpu_s_per_million=measured.broker_cpu / done * 1e6,
            **fields,
        )


class WorkloadFailed(Exception):
    """The client of a workload raised, ended, or was killed at its deadline."""


# --- running a client in its own process ---------------------------------------------------------

_Work = Callable[..., Any]


def _enter(
    answer: Connection, work: _Work, recipe: ClientRecipe, arguments: tuple[Any, ...]
) -> None:
    try:
        client = recipe()
        try:
            outcome: Any = work(client, *arguments)
        finally:
            client.close()
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        outcome = WorkloadFailed(f"{type(error).__name__}: {error} ({last.name}:{last.lineno})")
    answer.send(outcome)


class _Running:
    """A client at work in its own process."""

    def __init__(self, bench: Bench, work: _Work, *arguments: Any) -> None:
        self._answer, theirs = _spawn.Pipe(duplex=False)
        self._deadline = time.monotonic() + bench.settings.deadline
        self._process = _spawn.Process(
            target=_enter, args=(theirs, work, bench.recipe, arguments), daemon=True
        )
        self._process.start()
        theirs.close()

    def outcome(self) -> Any:
        """What the work returned; kills the client at its deadline."""
        try:
            if not self._answer.poll(max(0.0, self._deadline - time.monotonic())):
                raise WorkloadFailed("killed at the hard deadline")
            outcome = self._answer.recv()
        except EOFError:
            raise WorkloadFailed("the client process ended without an answer") from None
        finally:
            self.stop()
        if isinstance(outcome, WorkloadFailed):
            raise outcome
        return outcome

    def stop(self) -> None:
        """End the process, by force if it has not ended by itself."""
        self._process.join(0.5 if self._answer.closed else 2.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._answer.close()


# --- what runs inside the client process ---------------------------------------------------------


def _prepare(client: Any, topic: str, groups: list[str]) -> None:
    client.prepare(topic, groups)


def _publish(
    client: Any, topic: str, count: int, seconds: float, pids: list[int], one_by_one: bool = False
) -> Measured:
    meter = Meter(count=count, seconds=seconds, broker_pids=pids)
    client.publish(topic, one_by_one, meter)
    return _seen(meter)


def _send_each(
    client: Any, topic: str, callers: int, seconds: float, pids: list[int]
) -> tuple[Measured, list[float]]:
    meter = Meter(count=1_000_000, seconds=seconds, broker_pids=pids)
    took = client.send_each(topic, callers, meter)
    return _seen(meter), took


def _consume(
    client: Any, topic: str, one_by_one: bool, count: int, seconds: float, pids: list[int]
) -> Measured:
    meter = Meter(count=count, seconds=seconds, broker_pids=pids)
    client.consume(topic, "g0", one_by_one, meter)
    return _seen(meter)


def _consume_groups(
    client: Any,
    topic: str,
    groups: list[str],
    each: int,
    seconds: float,
    pids: list[int],
    gate: Any,
) -> Measured:
    meter = Meter(
        count=each * len(groups), seconds=seconds, broker_pids=pids, before_begin=gate.wait
    )
    client.consume_groups(topic, groups, meter)
    return _seen(meter)


def _publish_paced(client: Any, topic: str, pace: Pace, gate: Any) -> tuple[int, float]:
    gate.wait()
    began = time.monotonic()
    return client.publish_paced(topic, pace), time.monotonic() - began


def _consume_stamped(client: Any, topic: str, count: int, seconds: float, gate: Any) -> list[int]:
    meter = Meter(count=count, seconds=seconds)
    return list(client.consume_stamped(topic, "g0", gate.wait, meter))


def _seen(meter: Meter) -> Measured:
    assert meter.measured is not None, "a client ends the meter it began"
    return meter.measured


# --- the workloads -------------------------------------------------------------------------------


def publish(bench: Bench) -> Result:
    """The fastest confirmed way, on a fresh topic with one group that reads nothing yet."""
    settings = bench.settings
    _Running(bench, _prepare, "warm", ["g0"]).outcome()
    _Running(bench, _publish, "warm", bench.peer.limits.warm_up, 2.0, bench.pids).outcome()
    _Running(bench, _consume, "warm", False, bench.peer.limits.warm_up, 1.0, bench.pids).outcome()
    _Running(bench, _prepare, "bulk", ["g0"]).outcome()
    measured = _Running(
        bench, _publish, "bulk", settings.count, settings.seconds, bench.pids
    ).outcome()
    bench.published = measured.done
    return bench.rated(TITLES["publish"], measured, note=f"{measured.done:,} messages")


def publish_one_by_one(bench: Bench) -> Result:
    """One pipelined call for each message, where that differs from the fastest way."""
    workload, settings = TITLES["calls"], bench.settings
    if not bench.peer.limits.batch_publish:
        return bench.result(workload, rate=None, note="as publish: the client has no batch call")
    _Running(bench, _prepare, "calls", ["g0"]).outcome()
    measured = _Running(
        bench, _publish, "calls", settings.count, settings.seconds, bench.pids, True
    ).outcome()
    return bench.rated(workload, measured, note=f"{measured.done:,} messages")


def consume(bench: Bench) -> Result:
    """The first half of what `publish` left, by batches with batched acks."""
    return _consume_half(bench, TITLES["consume"], one_by_one=False)


def consume_one_by_one(bench: Bench) -> Result:
    """The second half, message by message with an ack for each where the peer has one."""
    return _consume_half(bench, TITLES["one"], one_by_one=True)


def _consume_half(bench: Bench, workload: str, *, one_by_one: bool) -> Result:
    if not bench.published:
        return bench.result(workload, rate=None, note="nothing was published to consume")
    count = max(1, int(bench.published * 0.48))  # a few less: prefetched ones may be out on lease
    measured = _Running(
        bench, _consume, "bulk", one_by_one, count, bench.settings.seconds, bench.pids
    ).outcome()
    return bench.rated(workload, measured, note=f"{measured.done:,} messages")


def single(bench: Bench) -> Result:
    """One caller that waits for each confirm."""
    return _single(bench, TITLES["single"], 1)


def single_64(bench: Bench) -> Result:
    """64 concurrent callers that each wait for their confirm."""
    return _single(bench, TITLES["single64"], 64)


def _single(bench: Bench, workload: str, callers: int) -> Result:
    topic = f"single{callers}"
    _Running(bench, _prepare, topic, ["g0"]).outcome()
    seconds = min(2.0, bench.settings.seconds)
    measured, took = _Running(bench, _send_each, topic, callers, seconds, bench.pids).outcome()
    in_ms = [each * 1e3 for each in took]
    return bench.rated(
        workload, measured, p50_ms=percentile(in_ms, 0.50), p99_ms=percentile(in_ms, 0.99)
    )


def latency(bench: Bench) -> Result:
    """Producer process to consumer process at a steady 10 k/s, from due to received."""
    workload = TITLES["latency"]
    bench = replace(bench, settings=replace(bench.settings, deadline=LATENCY_DEADLINE))
    count = int(LATENCY_RATE * LATENCY_SECONDS)
    gate = _spawn.Barrier(2, timeout=bench.settings.deadline)
    _Running(bench, _prepare, "paced", ["g0"]).outcome()
    consumer = _Running(bench, _consume_stamped, "paced", count, LATENCY_SECONDS + 3.0, gate)
    pace = Pace(rate=LATENCY_RATE, count=count)
    producer = _Running(bench, _publish_paced, "paced", pace, gate)
    try:
        sent_rate, failure = _sent_rate(producer)
        ages = _received(consumer, sent_rate)
    finally:
        producer.stop()
        consumer.stop()
    counted = [age / 1e6 for age in ages[int(len(ages) * SETTLE_FRACTION) :]]
    p50, p99 = percentile(counted, 0.50), percentile(counted, 0.99)
    overloaded = len(ages) < count or p50 is None or p50 > OVERLOADED_MS
    note = f"{len(ages):,} of {count:,} received in time{failure}"
    return bench.result(
        workload,
        rate=sent_rate,
        p50_ms=p50,
        p99_ms=p99,
        note=f"overloaded: {note}" if overloaded else "",
    )


def _sent_rate(producer: _Running) -> tuple[float | None, str]:
    """What the producer reached; one that was killed at the deadline did not keep up."""
    try:
        sent, took = producer.outcome()
    except WorkloadFailed as error:
        return None, f", producer {error}"
    return sent / took, ""


def _received(consumer: _Running, sent_rate: float | None) -> list[int]:
    """The ages seen; a consumer killed because its producer could not keep up saw none."""
    try:
        ages: list[int] = consumer.outcome()
    except WorkloadFailed:
        if sent_rate is not None and sent_rate > 0.8 * LATENCY_RATE:
            raise
        return []
    return ages


def fan_out_10(bench: Bench) -> Result:
    """10 groups drain one topic at the same time."""
    return _fan_out(bench, 10)


def fan_out_50(bench: Bench) -> Result:
    """50 groups drain one topic at the same time."""
    return _fan_out(bench, 50)


def _fan_out(bench: Bench, count: int) -> Result:
    topic = f"fan{count}"
    workload = TITLES[topic]
    groups = [f"g{index}" for index in range(count)]
    each = bench.peer.limits.fan_out_each * (50 // count if count < 50 else 1)
    _Running(bench, _prepare, topic, groups).outcome()
    filled = _Running(bench, _publish, topic, each, 4.0, bench.pids).outcome()
    gate = _spawn.Barrier(FAN_OUT_PROCESSES, timeout=bench.settings.deadline)
    shares = [groups[index::FAN_OUT_PROCESSES] for index in range(FAN_OUT_PROCESSES)]
    running = [
        _Running(
            bench,
            _consume_groups,
            topic,
            share,
            filled.done,
            bench.settings.seconds,
            bench.pids,
            gate,
        )
        for share in shares
    ]
    try:
        parts = [each_running.outcome() for each_running in running]
    finally:
        for each_running in running:
            each_running.stop()
    total = Measured(
        done=sum(part.done for part in parts),
        began=min(part.began for part in parts),
        ended=max(part.ended for part in parts),
        client_cpu=sum(part.client_cpu for part in parts),
        broker_cpu=max(part.broker_cpu for part in parts),
    )
    filling = filled.done / (filled.ended - filled.began)
    note = f"deliveries/s in all; {filled.done:,} each, filled at {filling:,.0f}/s"
    return bench.rated(workload, total, note=note)


def percentile(values: list[float], fraction: float) -> float | None:
    """The nearest-rank percentile; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


TITLES = {
    "publish": "publish",
    "calls": "publish one by one",
    "consume": "consume",
    "one": "consume one by one",
    "single": "single, 1 caller",
    "single64": "single, 64 callers",
    "latency": f"latency at {LATENCY_RATE // 1000} k/s",
    "fan10": "fan-out, 10 groups",
    "fan50": "fan-out, 50 groups",
}
"""What a result calls each workload."""

WORKLOADS: dict[str, Callable[[Bench], Result]] = {
    "publish": publish,
    "calls": publish_one_by_one,
    "consume": consume,
    "one": consume_one_by_one,
    "single": single,
    "single64": single_64,
    "latency": latency,
    "fan10": fan_out_10,
    "fan50": fan_out_50,
}
"""By the short name that `run --workloads` takes, in the order they run."""
