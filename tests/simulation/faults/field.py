"""Where faults happen: the machines by what they do, the seed's chance, and how things end again.

What a fault does later (a link heals, a machine comes back) is done unless everything was healed
meanwhile. A fault that must run its course before that says so with `takes`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.cluster.registry import SharedRegistry
from tests.simulation.cluster.shape import Shape
from tests.simulation.world.machine import Machine
from tests.simulation.world.world import World

Strike = Callable[[], str]
Kinds = dict[str, tuple[int, Strike]]
"""Name -> how often, compared with others, and what to do; it returns its story."""


@dataclass(slots=True)
class Field:
    world: World
    registry: SharedRegistry
    shape: Shape
    servers: list[Machine] = field(default_factory=list)
    brokers: list[Machine] = field(default_factory=list)
    """Those of the servers that are brokers."""
    metas: list[Machine] = field(default_factory=list)
    clients: list[Machine] = field(default_factory=list)
    failed: dict[Machine, None] = field(default_factory=dict)
    """Servers whose disk failed: their operator starts them again."""
    clocks: dict[Machine, int] = field(default_factory=dict)
    """How wrong clocks were before they jumped."""
    members: dict[str, int] = field(default_factory=dict)
    """How many each broker group has, and that of delay servers."""
    group_topics: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Which group consumes what."""
    flips: set[tuple[str, str, int]] = field(default_factory=set)
    """Bits that turned over: machine, log, offset of the byte."""
    disks_lost: bool = False
    """Somebody lost what it had, or the registry did; once in a run."""
    over: bool = False
    jumped: Callable[[Machine], None] = lambda machine: None
    """Hears whose clock is set."""
    busy_until: float = 0.0
    careful_until: float = 0.0
    """Nobody is promoted by force: meta servers may not know yet that somebody is gone for good."""

    @property
    def everybody(self) -> list[Machine]:
        return [*self.servers, *self.metas, *self.clients]

    def later(self, seconds: float, what: Callable[..., None], *args: object) -> None:
        self.world.after(seconds, self._unless_over, what, args)

    def _unless_over(self, what: Callable[..., None], args: tuple[object, ...]) -> None:
        if not self.over:
            what(*args)

    def takes(self, seconds: float) -> None:
        self.busy_until = max(self.busy_until, self.world.now + seconds)

    def some_time(self) -> float:
        """Mostly short; sometimes longer than every time-out there is."""
        chance = self.world.random
        return chance.choice((0.05, 1.0, 5.0, 20.0)) * (0.2 + chance.random())

    def replicated(self) -> list[list[Machine]]:
        """The in-sync members of every group that has several, its master first."""
        found = []
        for standing in self.registry.now():
            names = [
                member.address.partition(":")[0]
                for member in sorted(standing.members, key=lambda one: one.id != standing.master)
                if member.id in standing.in_sync
            ]
            if len(names) > 1:
                found.append([self.world.machines[name] for name in names])
        return found
