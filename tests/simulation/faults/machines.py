"""Machines and processes: killed, stopped, paused, without power, with a wrong clock."""

from tests.simulation.faults.field import Field, Kinds
from tests.simulation.world.machine import Machine


class MachineFaults:
    def __init__(self, field: Field) -> None:
        self._field = field
        self._random = field.world.random

    def kinds(self) -> Kinds:
        return {
            "kill server": (6, self._kill_server),
            "cut power": (8, self._cut_power),
            "pause": (5, self._pause),
            "suspend": (1, self._suspend),
            "stop": (2, self._stop),
            "jump": (2, self._jump),
            "kill meta": (2, self._kill_meta),
            "kill client": (2, self._kill_client),
        }

    def _kill_server(self) -> str:
        return self._kill(self._random.choice(self._field.servers))

    def _kill_meta(self) -> str:
        return self._kill(self._random.choice(self._field.metas))

    def _kill_client(self) -> str:
        return self._kill(self._random.choice(self._field.clients))

    def _kill(self, machine: Machine) -> str:
        away = self._field.some_time()
        machine.kill()
        self._field.later(away, machine.start)
        return f"kill {machine.name} for {away:.3f}"

    def _cut_power(self) -> str:
        machine = self._random.choice(self._field.servers)
        away = self._field.some_time()
        if self._random.random() < 0.5:
            machine.troubles.cut_power(self._random.randrange(1, 12))
            return f"power cut in the middle of writing {machine.name}"
        machine.cut_power()
        self._field.later(away, machine.start)
        return f"power cut {machine.name} for {away:.3f}"

    def _pause(self) -> str:
        machine = self._random.choice([*self._field.servers, *self._field.everybody])
        away = self._field.some_time()
        machine.pause()
        self._field.later(away, machine.resume)
        return f"pause {machine.name} for {away:.3f}"

    def _suspend(self) -> str:
        """A consumer sleeps longer than its leases: others get what it held, and it must begin
        nothing of that when it wakes up."""
        consumers = [each for each in self._field.clients if "producer" not in each.name]
        machine, away = self._random.choice(consumers), 20.0 + 8.0 * self._random.random()
        machine.pause()
        self._field.later(away, machine.resume)
        return f"suspend {machine.name} for {away:.3f}"

    def _stop(self) -> str:
        machine = self._random.choice(self._field.servers)
        if machine.process is not None and machine.process.alive:
            machine.process.stop()
        return f"stop {machine.name}"

    def _jump(self) -> str:
        machine = self._random.choice(self._field.everybody)
        jump_ms = self._random.choice((-3_600_000, -5_000, 5_000, 3_600_000))
        self._field.clocks.setdefault(machine, machine.clock.skew_ms)
        machine.clock.skew_ms += jump_ms
        self._field.jumped(machine)
        return f"clock of {machine.name} jumps by {jump_ms} ms"
