"""The registry: away, without an answer, emptied, or an older copy of it put back.

What members have on their disks brings it forward: epochs, standings, numbers, order-key slots. A
topic or group that it does not know any more is made again, with another number; what was in it has
no name, and must still lie in the logs. Once in a run, and not together with a lost disk: a member
that the latest record names, and that is gone for good, is for a person to decide about. Meta
servers are started again afterwards, or (an older copy) go on.
"""

from tests.simulation.faults.field import Field, Kinds

CLIENTS_AGAIN_S = 10.0


class RegistryFaults:
    def __init__(self, field: Field) -> None:
        self._field = field
        self._random = field.world.random

    def kinds(self) -> Kinds:
        return {
            "lose registry": (2, self._lose_registry),
            "old registry": (2, self._old_registry),
            "stale registry": (1, self._stale_registry),
            "empty registry": (1, self._empty_registry),
        }

    def _lose_registry(self) -> str:
        registry = self._field.registry
        registry.away = self._random.choice(("away", "unknown"))
        self._field.later(self._field.some_time(), setattr, registry, "away", "")
        return f"the registry is {registry.away}"

    def _old_registry(self) -> str:
        """Before topics and groups are there a copy is as good as none."""
        field = self._field
        if field.disks_lost or not (field.registry.knows(field.group_topics) or self._is_plain()):
            return "no older registry is put back"
        late, running = field.some_time(), self._random.random() < 0.5
        self._take(late)
        field.later(late, self._put_back, field.registry.copy(), running)
        how = "while meta servers run" if running else "and meta servers start again"
        return f"the registry of now is put back after {late:.3f}, {how}"

    def _put_back(self, copy: bytes, running: bool) -> None:
        self._field.registry.put_back(copy)
        if not running:
            self._restart_metas()

    def _stale_registry(self) -> str:
        """Replicas are away and leave the set; then an older copy says that they are in it, and the
        master is gone. They know no better, but meta servers saw more."""
        field, groups = self._field, self._field.replicated()
        if field.disks_lost or not groups or not field.registry.knows(field.group_topics):
            return "no registry is stale"
        master, *others = self._random.choice(groups)
        late = field.shape.late_s * 1.5 + 1
        away = field.shape.dead_s * 2 + self._random.uniform(3, 15)
        self._take(late + away)
        for other in others:
            other.kill()
            field.later(late, other.start)
        field.later(late, self._put_back, field.registry.copy(), self._random.random() < 0.5)
        field.later(late, master.kill)
        field.later(late + away, master.start)
        return f"replicas of {master.name} are killed, after {late:.3f} it is, on an old registry"

    def _empty_registry(self) -> str:
        """A member that has nothing yet would begin its group anew, and make the others strangers.
        Consumers that stay connected go on with topics that have no name any more: they are
        started again."""
        field = self._field
        if field.disks_lost or not self._is_plain() or not field.registry.has_all(field.members):
            return "no registry is emptied"
        self._take(CLIENTS_AGAIN_S)
        field.registry.empty()
        self._restart_metas()
        for client in field.clients:
            field.later(CLIENTS_AGAIN_S, client.kill)
            field.later(CLIENTS_AGAIN_S, client.start)
        return "the registry is emptied, and meta servers start again"

    def _is_plain(self) -> bool:
        """Nothing waits for a topic that has lost its name."""
        return not self._field.shape.transactions and not self._field.shape.delays

    def _take(self, late: float) -> None:
        field = self._field
        field.disks_lost = True
        field.careful_until = field.world.now + late + field.shape.dead_s * 2 + 5
        field.takes(late)

    def _restart_metas(self) -> None:
        for meta in self._field.metas:
            meta.kill()
        for meta in self._field.metas:
            meta.start()
