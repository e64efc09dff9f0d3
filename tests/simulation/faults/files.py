"""Files of one member that are cut short or removed behind its back, while others have everything.

The member is down meanwhile, or runs and has the files open. Once in a run, together with other
ways to lose a disk: two members that lost different parts are more than replication promises. What
is cut was on the disk and is known to have been: the mark of the log is as the process left it. A
member that lost power and then its files, before it was up again, may have lost the mark as well.
"""

from pathlib import Path

from ternmq.storage.files import log_mark
from tests.simulation.faults.field import Field, Kinds
from tests.simulation.world.machine import Machine


class FileFaults:
    def __init__(self, field: Field) -> None:
        self._field = field
        self._random = field.world.random

    def kinds(self) -> Kinds:
        return {
            "cut log": (2, self._cut_log),
            "remove log": (2, self._remove_log),
            "unlink log": (2, self._unlink_log),
            "unlink folder": (2, self._unlink_folder),
            "unlink last": (1, self._unlink_last),
        }

    def _cut_log(self) -> str:
        """It was killed, and its message log is half as long."""
        machine = self._victim()
        if machine is None:
            return "no log is cut"
        self._kill(machine)
        files = _logs(machine)
        for path in files[len(files) // 2 + 1 :]:
            machine.disk.remove(path)
        if files:
            path = files[len(files) // 2]
            machine.disk.cut(path, len(machine.disk.read(path)) // 2)
        return f"kill {machine.name}, and its log is cut to half"

    def _remove_log(self) -> str:
        """It was killed, and its message log is gone."""
        machine = self._victim()
        if machine is None:
            return "no log is removed"
        self._kill(machine)
        _unlink(machine)
        return f"kill {machine.name}, and its log is removed"

    def _unlink_log(self) -> str:
        """It runs, and its message log is gone; perhaps the master is, too, a moment later."""
        machine = self._victim()
        if machine is None:
            return "no log is unlinked"
        _unlink(machine)
        return f"the log of {machine.name} is unlinked{self._and_master(machine)}"

    def _unlink_folder(self) -> str:
        """It runs, and all that it has is gone."""
        machine = self._victim()
        if machine is None:
            return "no folder is unlinked"
        machine.disk.remove_tree(_home(machine))
        return f"the folder of {machine.name} is unlinked{self._and_master(machine)}"

    def _unlink_last(self) -> str:
        """The replicas are gone for a while, and the log of the master is for good, before they are
        late; then the master is, too. They have to be the ones that may lead."""
        groups = self._field.replicated()
        master = groups[0][0] if groups else None
        if master is None or self._victim(master) is None:
            return "no master loses its log alone"
        shape = self._field.shape
        moment = shape.late_s * self._random.uniform(0.1, 0.9)
        away = moment + shape.late_s * 2 + 1
        for other in groups[0][1:]:
            other.kill()
            self._field.later(away + self._random.random(), other.start)
        self._field.later(moment, _unlink, master)
        self._field.later(away, master.kill)
        self._field.later(away + self._random.random(), master.start)
        self._field.takes(away + 1)
        return f"replicas of {master.name} are killed for {away:.3f}, its log is unlinked"

    def _victim(self, wanted: Machine | None = None) -> Machine | None:
        """A member that may lose what it has: others are in sync."""
        groups = self._field.replicated()
        if self._field.disks_lost or not groups:
            return None
        machine = wanted or self._random.choice(self._random.choice(groups))
        if not _is_marked(machine):
            return None
        self._field.disks_lost = True
        self._field.careful_until = self._field.world.now + self._field.shape.dead_s * 2 + 5
        return machine

    def _kill(self, machine: Machine) -> None:
        machine.kill()
        for name in machine.disk.names(_home(machine)):
            if name.endswith(".mark"):
                path = _home(machine) / name
                machine.disk.place(path, machine.disk.read(path))
        others = [each for group in self._field.replicated() for each in group if machine in group]
        if self._random.random() < 0.5:  # The others are down, too, and it is back first.
            away = self._field.shape.dead_s * 2 + self._random.uniform(1, 20)
            for other in others:
                if other is not machine:
                    other.kill()
                    self._field.later(away, other.start)
            self._field.takes(away)
        self._field.later(self._field.some_time(), machine.start)

    def _and_master(self, machine: Machine) -> str:
        [group] = [group for group in self._field.replicated() if machine in group] or [[]]
        if not group or group[0] is machine or self._random.random() < 0.3:
            return ""
        moment = self._random.choice((0.0, 0.0, 0.1, 1.0))
        away = self._field.shape.dead_s * 2 + self._random.uniform(1, 20)
        self._field.later(moment, group[0].kill)
        self._field.later(moment + away, group[0].start)
        self._field.takes(moment + away)
        return f", and {group[0].name} is killed after {moment}"


def _unlink(machine: Machine) -> None:
    for path in _logs(machine):
        machine.disk.remove(path)


def _home(machine: Machine) -> Path:
    folder = Path("/") / machine.name
    return folder / ("broker" if machine.disk.exists(folder / "broker") else "delay")


def _is_marked(machine: Machine) -> bool:
    """All of its message log is known to be on its disk."""
    home, files = _home(machine), _logs(machine)
    mark = home / ("message.mark" if home.name == "broker" else "wal.mark")
    if not files or not machine.disk.exists(mark) or not machine.disk.read(mark):
        return False
    end = int(files[-1].stem) + len(machine.disk.read(files[-1]))
    return log_mark.decode(machine.disk.read(mark), mark)[0] >= end


def _logs(machine: Machine) -> list[Path]:
    """The files of its message log."""
    home = _home(machine)
    folder = home / ("message" if home.name == "broker" else "wal")
    if not machine.disk.exists(folder):
        return []
    return [folder / name for name in machine.disk.names(folder) if name.endswith(".log")]
