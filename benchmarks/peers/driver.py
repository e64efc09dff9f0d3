"""What a peer is, what its client can do, and what one measurement says.

A `Peer` owns one server (and only that server): it starts it on free loopback ports in a directory
handed in and always stops it. Its `client()` is a picklable recipe; the workloads build the client
inside a process of their own, so client CPU is the client's alone and a hung client can be killed.

A `Client` does the talking and nothing else: it never measures. It calls `meter.begin()` once
connected and ready, asks `meter.room(done)` whether to go on, and calls `meter.end(done)` when the
last confirm or ack has been answered. So set-up is never counted and all have the same time box.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.peers.meter import Meter

BODY_SIZE = 100
"""Every workload sends bodies of this many bytes: the size all figures in the issue speak of."""

TOPICS = {
    "warm": 1,
    "bulk": 1,
    "calls": 1,
    "single1": 1,
    "single64": 1,
    "paced": 1,
    "fan10": 10,
    "fan50": 50,
}
"""The topics of the workloads and how many groups (g0, g1, ...) each has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One workload of one peer. None means: not measured by this workload, or see `note`."""

    name: str
    workload: str
    rate: float | None
    client_cpu_s_per_million: float | None = None
    broker_cpu_s_per_million: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    durability: str
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON-able fields."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A steady publish: `count` messages at `rate` a second, each stamped when it was due."""

    rate: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of each workload this peer can do inside a time box."""

    fan_out_each: int
    warm_up: int = 2_000
    batch_publish: bool = False
    """The client takes many messages in one call, so one call for each is measured as well."""


class Client(Protocol):
    """What a workload asks of one peer's Python client. A call returns after its last confirm."""

    def prepare(self, topic: str, groups: list[str]) -> None:
        """Create the topic and the groups; a group sees everything published from now on."""

    def publish(self, topic: str, one_by_one: bool, meter: Meter) -> None:
        """Publish confirmed: the fastest way, or with one pipelined call for each message."""

    def send_each(self, topic: str, callers: int, meter: Meter) -> list[float]:
        """`callers` concurrent callers, each waits for its confirm: seconds per send."""

    def consume(self, topic: str, group: str, one_by_one: bool, meter: Meter) -> None:
        """Consume and ack: by batch, or message by message with its own ack where that exists."""

    def consume_groups(self, topic: str, groups: list[str], meter: Meter) -> None:
        """Consume the topic once for each group, all at the same time, with batched acks."""

    def publish_paced(self, topic: str, pace: Pace) -> int:
        """Publish stamped bodies (see `stamp`) at a steady pace; how many were confirmed."""

    def consume_stamped(
        self, topic: str, group: str, ready: Callable[[], None], meter: Meter
    ) -> list[int]:
        """Call `ready` once subscribed, then take stamped bodies: nanoseconds from due to here."""

    def close(self) -> None:
        """Give up connections."""


ClientRecipe = Callable[[], Client]


class Peer(Protocol):
    """One server in one durability setting."""

    name: str
    durability: str
    limits: Limits

    def available(self) -> str | None:
        """None when the peer can run here, else the reason it cannot. Never raises."""

    def version(self) -> str:
        """Server and client version, for the report."""

    def start(self, directory: Path) -> None:
        """Start the server with its data in `directory`; return when it answers."""

    def stop(self) -> None:
        """Stop every process that `start` made. Safe to call at any time."""

    def pids(self) -> list[int]:
        """The roots of the server's process trees."""

    def client(self) -> ClientRecipe:
        """A picklable recipe for a client of the running server."""
