"""Disks and the registry: slow, failing, full, exchanged; away, or without an answer."""

from tests.simulation.faults.field import Field, Kinds
from tests.simulation.world.machine import Machine

FREE = 2**39


class DiskFaults:
    def __init__(self, field: Field) -> None:
        self._field = field
        self._random = field.world.random
        self._disks_lost = False

    def kinds(self) -> Kinds:
        return {
            "slow disk": (2, self._slow_disk), "break disk": (2, self._break_disk),
            "fill disk": (1, self._fill_disk), "lose disk": (2, self._lose_disk),
            "lose registry": (2, self._lose_registry),
        }  # fmt: skip

    def _lose_disk(self) -> str:
        """All files of one member are gone, while another one is in sync; once in a run."""
        groups = self._field.replicated()
        if self._disks_lost or not groups:
            return "no disk is lost"
        self._disks_lost = True
        self._field.careful_until = self._field.world.now + self._field.shape.dead_s * 2 + 5
        machine = self._random.choice(self._random.choice(groups))
        away = self._field.some_time()
        machine.cut_power()
        machine.lose_disk()
        self._field.later(away, machine.start)
        return f"the disk of {machine.name} is gone, a new one after {away:.3f}"

    def _slow_disk(self) -> str:
        machine = self._random.choice(self._field.servers)
        machine.troubles.slow = self._random.choice((10.0, 300.0))
        self._field.later(self._field.some_time(), machine.troubles.calm)
        return f"the disk of {machine.name} is slow"

    def _break_disk(self) -> str:
        machine = self._random.choice(self._field.servers)
        rates = {"fail_syncs": 0.3, "fail_writes": 0.3, "short_writes": 0.5}
        what = self._random.choice(list(rates))
        setattr(machine.troubles, what, rates[what])
        if what != "short_writes":
            self._field.failed[machine] = None
        self._field.later(self._field.some_time(), machine.troubles.calm)
        self._field.later(self._field.some_time() + 5, _restart, machine)
        return f"disk of {machine.name}: {what}"

    def _fill_disk(self) -> str:
        machine = self._random.choice(self._field.servers)
        machine.disk.free_size = self._random.choice((0, 2_000, 50_000))
        self._field.later(self._field.some_time(), setattr, machine.disk, "free_size", FREE)
        return f"the disk of {machine.name} is full"

    def _lose_registry(self) -> str:
        registry = self._field.registry
        registry.away = self._random.choice(("away", "unknown"))
        self._field.later(self._field.some_time(), setattr, registry, "away", "")
        return f"the registry is {registry.away}"


def _restart(machine: Machine) -> None:
    machine.kill()
    machine.start()
