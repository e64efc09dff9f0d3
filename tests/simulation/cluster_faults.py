"""What goes wrong in a simulated cluster, and when: drawn from the seed, all of it over at the end.

Each fault is a line in the journal, so a failing seed tells its story. Faults overlap as the seed
says. `heal` ends everything: links work, machines are up, disks are well; a broker whose disk
failed is started again, as its operator would.
"""

from collections.abc import Callable

from tests.simulation.cluster_journal import Journal
from tests.simulation.cluster_registry import SharedRegistry
from tests.simulation.world.machine import Machine
from tests.simulation.world.world import World

FREE = 2**39


class Nemesis:
    """Breaks things at random."""

    def __init__(self, world: World, journal: Journal, registry: SharedRegistry) -> None:
        self._world = world
        self._journal = journal
        self._registry = registry
        self._random = world.random
        self._servers: list[Machine] = []
        self._metas: list[Machine] = []
        self._clients: list[Machine] = []
        self._failed: dict[Machine, None] = {}
        self._over = False
        self._disks_lost = False

    def watch(
        self, *, servers: list[Machine], metas: list[Machine], clients: list[Machine]
    ) -> None:
        self._servers, self._metas, self._clients = servers, metas, clients

    def plan(self, count: int, within: float) -> None:
        """So many faults at random moments."""
        for _ in range(count):
            self._world.after(self._random.random() * within, self._strike)

    def heal(self) -> None:
        self._over = True
        self._world.network.heal()
        self._registry.away = ""
        for machine in self._world.machines.values():
            machine.resume()
            machine.troubles.calm()
            machine.disk.free_size = FREE
            if machine in self._failed:
                machine.kill()
            machine.start()

    def _strike(self) -> None:
        if self._over:
            return
        kinds: list[tuple[int, Callable[[], str]]] = [
            (6, self._kill_server), (8, self._cut_power), (5, self._pause), (2, self._stop),
            (5, self._partition), (3, self._isolate), (4, self._reset), (3, self._stall),
            (2, self._slow_disk), (2, self._break_disk), (1, self._fill_disk), (2, self._jump),
            (2, self._kill_meta), (2, self._lose_registry), (2, self._kill_client),
            (2, self._lose_disk),
        ]  # fmt: skip
        [(_, strike)] = self._random.choices(kinds, weights=[weight for weight, _ in kinds])
        story = strike()
        self._world.trace("fault", story, "")
        self._journal.faults.append(f"{self._world.now:.3f} {story}")

    def _later(self, seconds: float, what: Callable[..., None], *args: object) -> None:
        self._world.after(seconds, self._unless_over, what, args)

    def _unless_over(self, what: Callable[..., None], args: tuple[object, ...]) -> None:
        if not self._over:
            what(*args)

    def _some_time(self) -> float:
        """Mostly short; sometimes longer than every time-out there is."""
        return self._random.choice((0.05, 1.0, 5.0, 20.0)) * (0.2 + self._random.random())

    # Machines and processes.

    def _kill_server(self) -> str:
        machine = self._random.choice(self._servers)
        return self._kill(machine)

    def _kill_meta(self) -> str:
        return self._kill(self._random.choice(self._metas))

    def _kill_client(self) -> str:
        return self._kill(self._random.choice(self._clients))

    def _kill(self, machine: Machine) -> str:
        away = self._some_time()
        machine.kill()
        self._later(away, machine.start)
        return f"kill {machine.name} for {away:.3f}"

    def _cut_power(self) -> str:
        machine = self._random.choice(self._servers)
        away = self._some_time()
        if self._random.random() < 0.5:
            machine.troubles.cut_power(self._random.randrange(1, 12))
            return f"power cut in the middle of writing {machine.name}"
        machine.cut_power()
        self._later(away, machine.start)
        return f"power cut {machine.name} for {away:.3f}"

    def _pause(self) -> str:
        machine = self._random.choice(
            [*self._servers, *self._servers, *self._metas, *self._clients]
        )
        away = self._some_time()
        machine.pause()
        self._later(away, machine.resume)
        return f"pause {machine.name} for {away:.3f}"

    def _stop(self) -> str:
        machine = self._random.choice(self._servers)
        if machine.process is not None and machine.process.alive:
            machine.process.stop()
        return f"stop {machine.name}"

    def _jump(self) -> str:
        machine = self._random.choice([*self._servers, *self._metas, *self._clients])
        jump_ms = self._random.choice((-3_600_000, -5_000, 5_000, 3_600_000))
        machine.clock.skew_ms += jump_ms
        return f"clock of {machine.name} jumps by {jump_ms} ms"

    # Links.

    def _everybody(self) -> list[Machine]:
        return [*self._servers, *self._metas, *self._clients]

    def _partition(self) -> str:
        one = self._random.choice(self._servers)
        other = self._random.choice([each for each in self._everybody() if each is not one])
        if self._random.random() < 0.5:
            one, other = other, one
        both = self._random.random() < 0.5
        self._world.network.cut_link(one, other)
        if both:
            self._world.network.cut_link(other, one)
        self._later(self._some_time(), self._world.network.heal)
        return f"{one.name} cannot reach {other.name}{', nor back' if both else ''}"

    def _isolate(self) -> str:
        one = self._random.choice([*self._servers, *self._servers, *self._metas])
        way = self._random.choice(("in", "out", "both"))
        for other in self._world.machines.values():
            if other is not one:
                if way != "in":
                    self._world.network.cut_link(one, other)
                if way != "out":
                    self._world.network.cut_link(other, one)
        self._later(self._some_time(), self._world.network.heal)
        return f"{one.name} is cut off ({way})"

    def _reset(self) -> str:
        ends = self._world.network.ends()
        if ends:
            self._world.network.reset(self._random.choice(ends))
        return "a connection is reset"

    def _stall(self) -> str:
        ends = self._world.network.ends()
        if ends:
            self._world.network.stall(self._random.choice(ends))
        return "a connection carries nothing any more"

    # Disks and the registry.

    def _lose_disk(self) -> str:
        """All files of one member are gone, while another one is in sync; once in a run."""
        for standing in self._registry.now():
            names = [member.address.partition(":")[0] for member in standing.members
                     if member.id in standing.in_sync]  # fmt: skip
            if self._disks_lost or len(names) < 2:
                continue
            self._disks_lost = True
            machine = self._world.machines[self._random.choice(names)]
            away = self._some_time()
            machine.cut_power()
            machine.lose_disk()
            self._later(away, machine.start)
            return f"the disk of {machine.name} is gone, a new one after {away:.3f}"
        return "no disk is lost"

    def _slow_disk(self) -> str:
        machine = self._random.choice(self._servers)
        machine.troubles.slow = self._random.choice((10.0, 300.0))
        self._later(self._some_time(), machine.troubles.calm)
        return f"the disk of {machine.name} is slow"

    def _break_disk(self) -> str:
        machine = self._random.choice(self._servers)
        rates = {"fail_syncs": 0.3, "fail_writes": 0.3, "short_writes": 0.5}
        what = self._random.choice(list(rates))
        setattr(machine.troubles, what, rates[what])
        if what != "short_writes":
            self._failed[machine] = None
        self._later(self._some_time(), machine.troubles.calm)
        self._later(self._some_time() + 5, self._restart, machine)
        return f"disk of {machine.name}: {what}"

    def _restart(self, machine: Machine) -> None:
        machine.kill()
        machine.start()

    def _fill_disk(self) -> str:
        machine = self._random.choice(self._servers)
        machine.disk.free_size = self._random.choice((0, 2_000, 50_000))
        self._later(self._some_time(), setattr, machine.disk, "free_size", FREE)
        return f"the disk of {machine.name} is full"

    def _lose_registry(self) -> str:
        self._registry.away = self._random.choice(("away", "unknown"))
        self._later(self._some_time(), setattr, self._registry, "away", "")
        return f"the registry is {self._registry.away}"
