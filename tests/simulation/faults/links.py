"""Links and connections: cut in one direction or both, reset, stalled, late."""

from tests.simulation.faults.field import Field, Kinds


class LinkFaults:
    def __init__(self, field: Field) -> None:
        self._field = field
        self._network = field.world.network
        self._random = field.world.random

    def kinds(self) -> Kinds:
        return {
            "partition": (5, self._partition),
            "isolate": (3, self._isolate),
            "reset": (3, self._reset),
            "storm": (2, self._storm),
            "stall": (3, self._stall),
            "hold": (4, self._hold),
        }

    def _partition(self) -> str:
        one = self._random.choice(self._field.servers)
        other = self._random.choice([each for each in self._field.everybody if each is not one])
        if self._random.random() < 0.5:
            one, other = other, one
        both = self._random.random() < 0.5
        self._network.cut_link(one, other)
        if both:
            self._network.cut_link(other, one)
        self._field.later(self._field.some_time(), self._network.heal)
        return f"{one.name} cannot reach {other.name}{', nor back' if both else ''}"

    def _isolate(self) -> str:
        one = self._random.choice([*self._field.servers, *self._field.servers, *self._field.metas])
        way = self._random.choice(("in", "out", "both"))
        for other in self._field.world.machines.values():
            if other is not one:
                if way != "in":
                    self._network.cut_link(one, other)
                if way != "out":
                    self._network.cut_link(other, one)
        self._field.later(self._field.some_time(), self._network.heal)
        return f"{one.name} is cut off ({way})"

    def _reset(self) -> str:
        ends = self._network.ends()
        if ends:
            self._network.reset(self._random.choice(ends))
        return "a connection is reset"

    def _storm(self) -> str:
        """Every connection of a machine, again and again: whoever has one comes back at once."""
        machine = self._random.choice(self._field.everybody)
        times, gap = self._random.choice((1, 5, 20)), self._random.choice((0.01, 0.1, 0.5))
        for number in range(times):
            self._field.later(number * gap, self._reset_all, machine.name)
        return f"{times} times all connections of {machine.name} are reset, every {gap} s"

    def _reset_all(self, name: str) -> None:
        for end in self._network.ends():
            if end.process.machine.name == name:
                self._network.reset(end)

    def _stall(self) -> str:
        ends = self._network.ends()
        if ends:
            self._network.stall(self._random.choice(ends))
        return "a connection carries nothing any more"

    def _hold(self) -> str:
        """What was sent on it arrives long after later connections have carried other things."""
        ends, late = self._network.ends(), self._field.some_time()
        if ends:
            end = self._random.choice(ends)
            self._network.stall(end)
            self._field.later(late, self._network.resume, end)
        return f"a connection is late by {late:.3f}"
