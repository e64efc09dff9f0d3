"""Disks: slow, failing, full, exchanged; a bit that turns over."""

from pathlib import Path

from ternmq.storage.consume.batch_scan import MessageFormat
from ternmq.storage.files import checkpoint, log_mark
from ternmq.storage.files.checkpoint import Checkpoint
from ternmq.storage.log import leader_epochs, recovery
from ternmq.storage.log.leader_epochs import Epochs
from ternmq.storage.log.segmented_log import SegmentedLog
from ternmq.storage.pull.record import PullFormat
from tests.simulation.faults.field import Field, Kinds
from tests.simulation.world.machine import Machine

FREE = 2**39


class DiskFaults:
    def __init__(self, field: Field) -> None:
        self._field = field
        self._random = field.world.random

    def kinds(self) -> Kinds:
        return {
            "slow disk": (2, self._slow_disk),
            "break disk": (2, self._break_disk),
            "read errors": (2, self._read_errors),
            "cold reads": (1, self._cold_reads),
            "fill disk": (1, self._fill_disk),
            "lose disk": (2, self._lose_disk),
            "flip": (2, self._flip),
        }

    def _lose_disk(self) -> str:
        """All files of one member are gone, while another one is in sync; once in a run."""
        groups = self._field.replicated()
        if self._field.disks_lost or not groups:
            return "no disk is lost"
        self._field.disks_lost = True
        self._field.careful_until = self._field.world.now + self._field.shape.dead_s * 2 + 5
        machine = self._random.choice(self._random.choice(groups))
        away = self._field.some_time()
        machine.cut_power()
        machine.lose_disk()
        self._field.later(away, machine.start)
        return f"the disk of {machine.name} is gone, a new one after {away:.3f}"

    def _flip(self) -> str:
        """One bit of the logs of one member turns over while it is off and another one is in sync;
        once in a run. Found at the start, it must not lead and copies everything anew; in
        bytes that no start reads it stays, until somebody reads them. Not in bytes of which this
        member cannot know that they ever were on its disk: there damage is a torn write, see
        `storage.log.recovery`."""
        groups = [group for group in self._field.replicated() if group[0] in self._field.brokers]
        if self._field.disks_lost or not groups:
            return "no bit flips"
        machine = self._random.choice(self._random.choice(groups))
        machine.cut_power()
        self._field.later(self._field.some_time(), machine.start)
        path = self._some_log(machine)
        known = 0 if path is None else _known_durable(machine, path)
        if path is None or known == 0:
            return f"power cut {machine.name}, no bit flips"
        self._field.disks_lost = True
        self._field.careful_until = self._field.world.now + self._field.shape.dead_s * 2 + 5
        offset = self._random.randrange(known)
        machine.disk.flip(path, offset, self._random.randrange(8))
        self._field.flips.add((machine.name, path.parent.name, int(path.stem) + offset))
        return f"power cut {machine.name}, and a bit flips in {path.name} at {offset}"

    def _some_log(self, machine: Machine) -> Path | None:
        """One of its log files with something in it."""
        home = Path("/") / machine.name / "broker"
        found = [
            home / log / name
            for log in ("message", "message", "pull")
            if machine.disk.exists(home / log)
            for name in machine.disk.names(home / log)
            if name.endswith(".log") and machine.disk.read(home / log / name)
        ]
        return self._random.choice(found) if found else None

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

    def _read_errors(self) -> str:
        machine = self._random.choice(self._field.servers)
        self._fail_reads(machine)
        return f"reads of {machine.name} fail: {machine.troubles.fail_reads}"

    def _fail_reads(self, machine: Machine) -> None:
        """And nothing comes from memory without waiting."""
        machine.troubles.fail_reads = self._random.choice((0.05, 0.5, 1.0))
        machine.disk.cached = False
        self._field.failed[machine] = None
        self._field.later(self._field.some_time(), _read_again, machine)

    def _cold_reads(self) -> str:
        """Consumers are away, and what they missed is then only on the disk of a broker that was
        started again, and whose reads fail for a while."""
        field, machine = self._field, self._random.choice(self._field.brokers)
        for client in field.clients:
            if "producer" not in client.name:
                client.kill()
                field.later(3.0, client.start)
        field.later(2.0, _restart, machine)
        field.later(2.9, self._fail_reads, machine)
        field.takes(4.0)
        return f"consumers are away, then reads of {machine.name} fail"

    def _fill_disk(self) -> str:
        machine = self._random.choice(self._field.servers)
        machine.disk.free_size = self._random.choice((1, 2_000, 50_000))
        self._field.later(self._field.some_time(), setattr, machine.disk, "free_size", FREE)
        return f"the disk of {machine.name} is full"


def _known_durable(machine: Machine, path: Path) -> int:
    """How much of a log file a start of this member knows to have been on its disk."""
    disk, log = machine.disk, path.parent
    marks, epochs = Checkpoint(), Epochs()
    if disk.exists(log.parent / "checkpoint"):
        marks = checkpoint.decode(disk.read(log.parent / "checkpoint"))
    if disk.exists(log.parent / "epochs"):
        epochs = leader_epochs.decode(disk.read(log.parent / "epochs"))
    durable, table = marks.message_durable, epochs.messages
    form: recovery.LogFormat = MessageFormat()
    if log.name == "pull":
        durable, table, form = marks.pull_durable, epochs.pulls, PullFormat()
    mark = log.with_name(f"{log.name}.mark")
    if disk.exists(mark) and disk.read(mark):
        durable = max(durable, log_mark.decode(disk.read(mark), mark)[0])
    segments = SegmentedLog(disk, log, segment_size=1)
    found = recovery.scan(
        segments,
        start=segments.start,
        durable=durable,
        form=recovery.OwnMarks(form, table.is_own),
        visit=lambda offset, data, problem: None,
    )
    segments.close()
    return max(0, min(found.durable - int(path.stem), len(disk.read(path))))


def _read_again(machine: Machine) -> None:
    machine.troubles.fail_reads, machine.disk.cached = 0.0, True


def _restart(machine: Machine) -> None:
    machine.kill()
    machine.start()
