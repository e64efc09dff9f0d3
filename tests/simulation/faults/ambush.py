"""Faults that belong together, aimed at what replication promises: the master and nobody else has
the newest bytes, and then another one leads.

By chance alone these come too rarely to find a master that acknowledges too early.
"""

from tests.simulation.faults.field import Field, Kinds
from tests.simulation.world.machine import Machine

FAILING = "failing blackout"
SILENT_S = 14.0
"""After this a connection that carries nothing is given up, and a new one not waited for."""


class Ambush:
    def __init__(self, field: Field) -> None:
        self._field = field
        self._network = field.world.network
        self._random = field.world.random

    def kinds(self) -> Kinds:
        kinds: Kinds = {
            "ambush": (3, self._ambush),
            "exile": (3, self._exile),
            "straggler": (2, self._straggler),
            "blackout": (2, self._blackout),
        }
        if FAILING in self._field.shape.only:  # By chance it is "break disk", then "blackout".
            kinds[FAILING] = (1, self._failing_blackout)
        return kinds

    def _ambush(self) -> str:
        """Replicas get nothing for a moment, not long enough to be late; then the master is gone
        for long enough that another one leads."""
        groups = self._field.replicated()
        if not groups:
            return "nobody is ambushed"
        master, *others = self._random.choice(groups)
        how = self._random.choice(("cut", "paused"))
        for other in others:
            if how == "cut":
                self._network.cut_link(master, other)
            else:
                other.pause()
        moment = self._field.shape.late_s * self._random.uniform(0.1, 0.9)
        end = self._random.choice(("kill", "power", "power", "pause", "isolate"))
        away = self._until_another_leads(heard=end == "kill")
        self._field.takes(moment + away)
        self._field.later(moment, self._strike, master, others, end, away)
        return f"replicas of {master.name} are {how} for {moment:.3f}, then it is gone: {end}"

    def _until_another_leads(self, *, heard: bool) -> float:
        """Who hears of the end of a connection looks at once, others when it was silent long."""
        at_once = self._field.shape.dead_s * 1.5 + 2
        return (at_once if heard else at_once + SILENT_S) * self._random.uniform(0.9, 1.1)

    def _strike(self, master: Machine, others: list[Machine], end: str, away: float) -> None:
        if end == "power":
            master.cut_power()
        elif end == "kill":
            master.kill()
        elif end == "pause":
            master.pause()
        self._network.heal()
        if end == "isolate":
            self._cut_off(master, list(self._field.world.machines.values()))
        for other in others:
            other.resume()
        back = {"pause": master.resume, "isolate": self._network.heal}
        self._field.later(away, back.get(end, master.start))

    def _cut_off(self, one: Machine, others: list[Machine]) -> None:
        for other in others:
            if other is not one:
                self._network.cut_link(one, other)
                self._network.cut_link(other, one)

    def _exile(self) -> str:
        """The master reaches clients and nobody else, until another one leads."""
        groups = self._field.replicated()
        if not groups:
            return "nobody is exiled"
        master, *_ = self._random.choice(groups)
        self._cut_off(master, [*self._field.servers, *self._field.metas])
        away = self._until_another_leads(heard=False)
        self._field.takes(away)
        self._field.later(away, self._network.heal)
        return f"{master.name} reaches clients only, for {away:.3f}"

    def _straggler(self) -> str:
        """A replica falls behind until it is out of the set; then the master is gone, and the
        straggler is the first who could ask to lead."""
        groups = self._field.replicated()
        if not groups:
            return "nobody falls behind"
        master, *others = self._random.choice(groups)
        straggler = self._random.choice(others)
        self._network.cut_link(master, straggler)
        late = self._field.shape.late_s * 1.5 + 1
        away = self._until_another_leads(heard=True)
        self._field.takes(late + away)
        self._field.later(late, self._strike, master, others, "kill", away)
        return f"{straggler.name} falls behind for {late:.3f}, then {master.name} is gone"

    def _blackout(self) -> str:
        """All in-sync members lose power while the disks of replicas are slow; the master comes
        back last."""
        return self._lights_out("slow", 300.0)

    def _failing_blackout(self) -> str:
        """The same after syncs of the replicas have failed: what those left out must not count,
        however often a replica comes again."""
        return self._lights_out("fail_syncs", 0.5)

    def _lights_out(self, trouble: str, rate: float) -> str:
        groups = self._field.replicated()
        if not groups:
            return "no blackout"
        members = self._random.choice(groups)
        for other in members[1:]:
            setattr(other.troubles, trouble, rate)
        moment = self._field.shape.late_s * self._random.uniform(0.1, 0.9)
        away = self._until_another_leads(heard=True)
        self._field.takes(moment + away)
        self._field.later(moment, self._all_off, members, away)
        return f"{members[0].name} and its replicas lose power after {moment:.3f}: {trouble}"

    def _all_off(self, members: list[Machine], away: float) -> None:
        for member in members:
            member.cut_power()
            member.troubles.calm()
        for other in members[1:]:
            self._field.later(self._random.uniform(0.1, 1.0), other.start)
        self._field.later(away, members[0].start)
