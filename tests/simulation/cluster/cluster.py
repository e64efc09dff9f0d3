"""One run of a simulated cluster: build it from a seed, break it, heal it, judge it.

The whole broker, meta and client code is the real one; only loop, network, disk, clock and the
registry's availability are simulated (`world`). `run.py` runs many seeds and replays one.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from ternmq.broker import role
from ternmq.broker.maintenance import retention
from ternmq.client.consuming.consumer import Consumer
from ternmq.delay.timing import scheduler
from ternmq.meta.registries.registry import Registry
from ternmq.node.broker_process import serving_broker_alone
from ternmq.node.config import NodeConfig, build
from ternmq.node.delay_process import serving_delay_alone
from ternmq.node.meta_process import serving_meta_alone
from ternmq.rpc.node_proof import NodeSecret
from ternmq.storage.config import StorageConfig
from ternmq.storage.log.retention_rules import reason_to_drop
from tests.simulation.cluster.backup import Backup
from tests.simulation.cluster.journal import Journal
from tests.simulation.cluster.later import Later
from tests.simulation.cluster.load import BILLING, SHIPPING, Load
from tests.simulation.cluster.members import bodies_without_name, check_members
from tests.simulation.cluster.nemesis import Nemesis
from tests.simulation.cluster.operator import Operator
from tests.simulation.cluster.registry import SharedRegistry
from tests.simulation.cluster.shape import drawn
from tests.simulation.faults.field import Field
from tests.simulation.world.machine import Machine, Process
from tests.simulation.world.world import World

T = TypeVar("T")

PORTS = 7700
SECRET = NodeSecret("of a simulated cluster, and no other", "the simulation")
DELAYS = "later"
CLOCKS_DRIFT_S = 0.1
BATCH_ROWS = 24
"""More messages share no batch here."""
SETTLED_WITHIN_S = 900.0
BEGIN_WITHIN_S = 60.0
RUN_THEIR_COURSE_S = 120.0
IN_SYNC_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    seed: int
    digest: str
    events: int
    seconds: float
    messages: int
    faults: list[str]


class Cluster:
    """A world with meta servers, brokers and clients."""

    def __init__(self, seed: int, *, hashed: bool = True, **wanted: Any) -> None:
        self.world = World(seed, hashed=hashed)
        self._random = self.world.random
        self.shape = replace(drawn(self._random), **wanted)
        self.journal = Journal(expires=bool(self.shape.expires))
        self._registry = SharedRegistry(self.world)
        self._field = Field(self.world, self._registry, self.shape)
        self.journal.may_be_damaged = lambda: BATCH_ROWS * len(self._field.flips)
        self._nemesis = Nemesis(self._field, self.journal)
        metas = [f"meta{number}" for number in range(self.shape.metas)]
        self.url = "tern://" + ",".join(f"{name}:{PORTS}" for name in metas)
        self.members: dict[str, list[Machine]] = {}
        self._skews: list[int] = []
        """That clocks of delay servers ever had."""
        self.load = Load(
            self.url,
            self.journal,
            self._random,
            interval=self.shape.lasts / self.shape.sends,
            transactions=self.shape.transactions,
        )
        self.load.now = lambda: self.world.now
        self._build(metas)

    def _build(self, metas: list[str]) -> None:
        add, field = self.world.add, self._field
        for number, members in enumerate(self.shape.members):
            group = f"g{number}"
            self.members[group] = [add(f"{group}-{n}", self._broker) for n in range(members)]
        self.load.groups = list(self.members)
        field.metas = [add(name, self._meta) for name in metas]
        field.servers = [member for members in self.members.values() for member in members]
        field.brokers = list(field.servers)
        field.servers += self._build_delays()
        field.clients = [
            *(add(f"producer{number}", self.load.produce) for number in range(2)),
            *(add(f"billing{number}", self.load.consume(BILLING)) for number in range(2)),
            *(add(f"shipping{number}", self.load.consume(SHIPPING)) for number in range(2)),
        ]
        field.members = {group: len(each) for group, each in self.members.items()}
        field.group_topics = self.load.group_topics
        self.journal.nameless = self._nameless
        self.journal.replaced = lambda: self._registry.replaced
        add("judge", self.load.judge)
        if self.shape.operated:
            operator = Operator(
                self.load,
                every=self.shape.lasts / 2,
                is_careful=lambda: self.world.now < field.careful_until,
            )
            add("operator", operator)

    def _build_delays(self) -> list[Machine]:
        if not self.shape.delays:
            return []
        machines = [self.world.add(f"{DELAYS}-{n}", self._delay) for n in range(self.shape.delays)]
        self.members[DELAYS] = machines
        self.load.later = Later(self.world, self.journal)
        self._field.jumped = lambda machine: self._look_at_clocks()
        self._look_at_clocks()
        return machines

    def _look_at_clocks(self) -> None:
        """A message is due by the clock of who took it, and goes out by that of who leads then."""
        if self.shape.delays:
            skews = [machine.clock.skew_ms for machine in self.members[DELAYS]]
            self._skews += skews
            self.journal.early_s = (max(self._skews) - min(self._skews)) / 1000 + CLOCKS_DRIFT_S

    def _config(self, process: Process) -> NodeConfig:
        name, shape = process.machine.name, self.shape
        return build(
            {
                "data_dir": Path("/") / name,
                "host": name,
                "insecure": True,
                "broker_group": name.partition("-")[0],
                "replica_lost": shape.replica_lost,
                "replica_timeout_ms": int(shape.late_s * 1000),
                "server_heartbeat_ms": int(shape.late_s * 1000),
                "server_dead_after_ms": int(shape.dead_s * 1000),
                "ports": PORTS,
                "session_grace_ms": 2_000,
                "lease_ms": 20_000,
                "checkpoint_interval_ms": 1_000,
                "half_check_interval_ms": 1_000,
                "half_checks_max": 1_000,
                # A full disk refuses; what it would delete by force was acknowledged.
                "disk_forced_percent": 100,
                "disk_full_percent": 100,
            },
            shape.retention,
        )

    async def _meta(self, process: Process) -> None:
        registry = cast(Registry, self._registry)
        async with serving_meta_alone(
            self._config(process),
            secret=SECRET,
            clock=process.machine.clock,
            open_registry=lambda: registry,
            disk=process.machine.disk,
        ):
            await process.stopping.wait()

    async def _broker(self, process: Process) -> None:
        machine = process.machine
        async with serving_broker_alone(
            self._config(process), self.url, secret=SECRET, clock=machine.clock, disk=machine.disk
        ):
            await process.stopping.wait()

    async def _delay(self, process: Process) -> None:
        machine = process.machine
        async with serving_delay_alone(
            self._config(process), self.url, secret=SECRET, clock=machine.clock, disk=machine.disk
        ):
            await process.stopping.wait()

    def run(self) -> Outcome:
        """Raises AssertionError when a rule is broken."""
        try:
            kept = nullcontext() if self.shape.expires else kept_for_ever()
            batches = self.shape.segment_batches
            leases = leases_by_the_clock_of(self.world)
            with self.world.entered(), segments_of(batches), synced_in_turn(), leases, kept:
                self._run()
        finally:
            self._registry.end()
        world = self.world
        return Outcome(
            world.seed,
            world.digest(),
            world.events,
            world.now,
            len(self.journal.stored),
            self.journal.faults,
        )

    def _run(self) -> None:
        world, load, journal = self.world, self.load, self.journal
        for machine in world.machines.values():
            machine.start_after(self._random.random() * 0.5)
        world.run(lambda: len(journal.stored) > 5, BEGIN_WITHIN_S, "the first messages")
        self._nemesis.plan(self.shape.faults, self.shape.lasts)
        backup = Backup(self._field, journal, _delays_first(self.members))
        if self.shape.backup:
            world.after(self._random.random() * self.shape.lasts, backup.begin)
        world.run_for(self.shape.lasts)
        world.run(lambda: world.now >= self._field.busy_until, RUN_THEIR_COURSE_S, "faults")
        self._nemesis.heal()
        journal.unreadable = BATCH_ROWS * len(self._field.flips)
        world.run_for(2.0)
        journal.over = True
        self._judge()
        if backup.after is not None:
            backup.restore()
            load.verdict = ""
            for machine in world.machines.values():
                machine.start()
            self._judge()

    def _judge(self) -> None:
        world, load = self.world, self.load
        world.run(lambda: load.verdict == "ok", SETTLED_WITHIN_S, "everything settled")
        world.run(self._all_in_sync, IN_SYNC_WITHIN_S, "all members in step")
        world.run_for(2.0)
        for group in load.groups:
            check_members(self.members[group], self._field.flips)

    def _nameless(self) -> set[bytes]:
        if not self._registry.replaced:
            return set()
        return bodies_without_name(self._field.brokers, self._registry.topic_ids())

    def _all_in_sync(self) -> bool:
        return all(
            len(standing.in_sync) >= len(self.members[standing.broker_group])
            for standing in self._registry.now()
        )


def _delays_first(groups: dict[str, list[Machine]]) -> dict[str, list[Machine]]:
    """What a delay server has sent must be in the backup of the broker."""
    return {group: groups[group] for group in sorted(groups, key=lambda one: one != DELAYS)}


@contextmanager
def segments_of(batches: int) -> Iterator[None]:
    """Logs of brokers begin a new file after so many batches; no setting goes as low."""
    small = partial(StorageConfig, segment_batches_max=batches, pull_segment_size=64 * 1024)
    setattr(role, "StorageConfig", small)  # noqa: B010
    try:
        yield
    finally:
        setattr(role, "StorageConfig", StorageConfig)  # noqa: B010


class InTurn(ThreadPoolExecutor):
    """What a thread of the simulation would let other threads do it does itself: those would be
    real ones, and whoever of them is first would draw the next number of the seed."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **options: Any) -> "Future[T]":
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **options))
        except BaseException as error:
            done.set_exception(error)
        return done


@contextmanager
def synced_in_turn() -> Iterator[None]:
    """Files of a delay server's checkpoint are synced one after the other."""
    setattr(scheduler, "ThreadPoolExecutor", InTurn)  # noqa: B010
    try:
        yield
    finally:
        setattr(scheduler, "ThreadPoolExecutor", ThreadPoolExecutor)  # noqa: B010


@contextmanager
def leases_by_the_clock_of(world: World) -> Iterator[None]:
    """Consumers see the end of their leases by the clock of their machine, which goes on while it
    sleeps."""

    def now() -> float:
        assert world.current is not None
        return world.current.machine.clock.monotonic()

    before = Consumer.__init__.__defaults__
    Consumer.__init__.__defaults__ = (now,)
    try:
        yield
    finally:
        Consumer.__init__.__defaults__ = before


@contextmanager
def kept_for_ever() -> Iterator[None]:
    """No segment is removed, though disks get full: the judge wants to see every message."""
    setattr(retention, "reason_to_drop", lambda segment, moment, rules: None)  # noqa: B010
    try:
        yield
    finally:
        setattr(retention, "reason_to_drop", reason_to_drop)  # noqa: B010


def simulate(
    seed: int, tell: Callable[[str], None] | None = None, *, hashed: bool = True, **wanted: Any
) -> Outcome:
    """One run; an AssertionError says what is wrong and how to see it again. `wanted` is in place
    of what the seed says (`Shape`)."""
    cluster = Cluster(seed, hashed=hashed, **wanted)
    cluster.world.tell = tell
    try:
        return cluster.run()
    except AssertionError as error:
        raise AssertionError(
            f"seed {seed}: {error} (now: {cluster.load.verdict})\n"
            + "".join(f"  {fault}\n" for fault in cluster.journal.faults)
            + f"replay: python -m tests.simulation.run --replay {seed}"
        ) from error
