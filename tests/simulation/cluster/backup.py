"""A backup of a simulated cluster, taken while it runs, and put back into an empty one.

What `tern backup` does on the machine of a server is done here to a simulated disk: by its own
inventory and order, file after file, while the server goes on; a log counts up to the size that it
had when it was its turn, and is read last. One member of each group that is in sync, delay servers
before brokers, the registry at the end. The rules (docs/day-two.md): everything that was
acknowledged before it began is there, once, and groups get all that they had not acked.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ternmq.backup.inventory import belongs, is_log, measured_after
from ternmq.backup.snapshot import SnapshotFile, is_cut
from ternmq.backup.verify import HOURS, problem_of
from tests.simulation.cluster.journal import Journal
from tests.simulation.faults.field import Field
from tests.simulation.world.machine import Machine

TRIES = 20
BETWEEN_FILES_S = 0.02
Files = dict[PurePosixPath, bytes]


@dataclass(slots=True)
class Backup:
    where: Field
    journal: Journal
    groups: dict[str, list[Machine]]
    """In the order in which they are backed up."""
    before: Journal | None = None
    """What was told to everybody when it began."""
    after: Journal | None = None
    """And when it was done; until then there is no backup."""
    files: dict[str, Files] = field(default_factory=dict)
    """Of each machine that was copied."""
    registry: bytes = b""

    def begin(self) -> None:
        self.before = self.journal.told_so_far()
        self._step(self._copy())

    def _step(self, steps: Iterator[float]) -> None:
        wait = next(steps, None)
        if wait is not None:
            self.where.world.after(wait, self._step, steps)

    def _copy(self) -> Iterator[float]:
        for group in self.groups:
            for _ in range(TRIES):
                machine = self._in_sync(group)
                files = None if machine is None else (yield from self._snapshot(machine))
                if machine is not None and files is not None and machine is self._in_sync(group):
                    self.files[machine.name] = files
                    break
                yield 0.1
            else:
                return
        self.registry = self.where.registry.copy()
        self.after = self.journal.told_so_far()
        self.journal.faults.append(f"{self.where.world.now:.3f} a backup: {list(self.files)}")

    def _in_sync(self, group: str) -> Machine | None:
        """Whose files are worth it."""
        for standing in self.where.registry.now():
            for member in standing.members:
                if standing.broker_group == group and member.id in standing.in_sync:
                    return self.where.world.machines[member.address.partition(":")[0]]
        return None

    def _snapshot(self, machine: Machine) -> Generator[float, None, Files | None]:
        """Its files as `backup.snapshot` takes them; None: they changed too much."""
        home, disk = Path("/") / machine.name, machine.disk
        listed = _listed(machine, home)
        sizes: dict[PurePosixPath, int] = {}
        states: Files = {}
        for path in sorted(listed, key=lambda one: (measured_after(one), one)):
            if not disk.exists(home / path):
                return None
            content = disk.read(home / path)
            sizes[path] = len(content)
            if not is_log(path):
                states[path] = content
            yield self.where.world.random.random() * BETWEEN_FILES_S
        if disk is not machine.disk or _listed(machine, home) != listed:
            return None
        files = states | {
            path: disk.read(home / path)[:size] for path, size in sizes.items() if is_log(path)
        }
        if is_cut([_file(path, content, sizes[path]) for path, content in files.items()]):
            return None
        if any(len(files[path]) != size for path, size in sizes.items()):
            return None
        return None if self._is_damaged(files) else files

    def _is_damaged(self, files: Files) -> bool:
        """`tern backup` reads what it has copied: a person would take another member then."""
        logs = sorted(path for path in files if is_log(path) and path.parent.name not in HOURS)
        last = {path.parent: path for path in logs}
        return any(
            problem_of(
                path.parent.name,
                int(path.stem),
                [files[path].rstrip(b"\0") if last[path.parent] == path else files[path]],
                last=last[path.parent] == path,
            )
            for path in logs
        )

    def restore(self) -> None:
        """Every machine is off; servers get empty disks, and the files of the backup."""
        for machine in self.where.world.machines.values():
            machine.cut_power()
            machine.lose_disk()
        for name, files in self.files.items():
            disk = self.where.world.machines[name].disk
            for path, content in files.items():
                disk.place(Path("/") / name / path, content)
        registry = self.where.registry
        replaced = registry.replaced
        registry.put_back(self.registry)
        registry.replaced = replaced  # Nothing that matters was made since.
        assert self.before is not None
        assert self.after is not None
        self.journal.begin_again(self.before, self.after)


def _listed(machine: Machine, home: Path) -> dict[PurePosixPath, int]:
    """Files that belong, and which each is."""
    inodes = machine.disk.inodes().items()
    found = ((PurePosixPath(path.relative_to(home)), number) for path, number in inodes)
    return {path: number for path, number in found if belongs(path)}


def _file(path: PurePosixPath, content: bytes, size: int) -> SnapshotFile:
    return SnapshotFile(
        path=path, source=Path(path), size=size, mode=0o600, version=(0, 0), content=content
    )
