"""What goes wrong in a simulated cluster, and when: drawn from the seed, all of it over at the end.

Each fault is a line in the journal, so a failing seed tells its story. Faults overlap as the seed
says. `heal` ends everything: links work, machines are up, disks are well; a broker whose disk
failed is started again, and a clock that went back set right, as an operator would. What can go
wrong is in `faults/`.
"""

from tests.simulation.cluster.journal import Journal
from tests.simulation.faults.ambush import Ambush
from tests.simulation.faults.disks import FREE, DiskFaults
from tests.simulation.faults.field import Field, Kinds
from tests.simulation.faults.files import FileFaults
from tests.simulation.faults.links import LinkFaults
from tests.simulation.faults.machines import MachineFaults
from tests.simulation.faults.registries import RegistryFaults


class Nemesis:
    """Breaks things at random."""

    def __init__(self, field: Field, journal: Journal) -> None:
        self._field = field
        self._world = field.world
        self._journal = journal
        parts = (
            MachineFaults(field),
            LinkFaults(field),
            DiskFaults(field),
            FileFaults(field),
            RegistryFaults(field),
            Ambush(field),
        )
        kinds: Kinds = {name: kind for part in parts for name, kind in part.kinds().items()}
        only = field.shape.only
        self._kinds = [kind for name, kind in kinds.items() if not only or name in only]

    def plan(self, count: int, within: float) -> None:
        """So many faults at random moments."""
        for _ in range(count):
            self._world.after(self._world.random.random() * within, self._strike)

    def heal(self) -> None:
        field = self._field
        field.over = True
        self._world.network.heal()
        field.registry.away = ""
        for machine, skew_ms in field.clocks.items():
            if machine.clock.skew_ms < skew_ms:  # Else delayed messages come an hour later.
                machine.clock.skew_ms = skew_ms
                field.jumped(machine)
        for machine in self._world.machines.values():
            machine.resume()
            machine.troubles.calm()
            machine.disk.free_size, machine.disk.cached = FREE, True
            if machine in field.failed:
                machine.kill()
            machine.start()

    def _strike(self) -> None:
        if self._field.over:
            return
        weights = [weight for weight, _ in self._kinds]
        [(_, strike)] = self._world.random.choices(self._kinds, weights=weights)
        story = strike()
        self._world.trace("fault", story, "")
        self._journal.faults.append(f"{self._world.now:.3f} {story}")
