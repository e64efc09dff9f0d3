"""The history of both logs on disk: the file `epochs`, and cuts that a crash interrupts.

Every change is on disk before it is acted upon: an epoch before its first record is written, the
table of a master before its bytes are. A cut is written down as an intent, done, and struck out; a
start that finds an intent does the cut again before anything else reads the logs, and nothing was
written in between. Marks that reach beyond a cut are lowered before the intent is written.
"""

from dataclasses import replace
from pathlib import Path

from ternmq.core.errors import Corrupt
from ternmq.core.log import get_logger
from ternmq.storage.files.disk import Disk
from ternmq.storage.log import leader_epochs
from ternmq.storage.log.leader_epochs import MESSAGES, PULLS, Epochs, Starts
from ternmq.storage.log.recovery_report import RecoveryReport
from ternmq.storage.log.segmented_log import SegmentedLog

log = get_logger()


class EpochHistory:
    """Which master wrote which part of the message log and the pull log (of a delay server: the
    decisions journal)."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self.epochs = Epochs()

    def load(self, report: RecoveryReport) -> None:
        if not self._disk.exists(self._path):
            return  # New, or of a release before there were replicas.
        try:
            self.epochs = leader_epochs.decode(self._disk.read(self._path))
        except Corrupt as error:
            # Without a table no history is common with anybody's: nothing can be cut by mistake.
            log.error("the epochs file is bad; the history before now is unknown", error=str(error))
            report.notes.append(error.message)

    def tables(self) -> dict[int, list[tuple[int, int]]]:
        """(epoch, start) of every epoch, by log: 0 the message log, 1 the pull log."""
        return {MESSAGES: self.epochs.messages.starts, PULLS: self.epochs.pulls.starts}

    def begin(self, epoch: int, message_end: int, pull_end: int) -> None:
        """This member leads from here on; blocks."""
        self._write(
            replace(
                self.epochs,
                messages=self.epochs.messages.begun(epoch, message_end),
                pulls=self.epochs.pulls.begun(epoch, pull_end),
            )
        )

    def adopt(self, tables: dict[int, Starts], *, empty: bool) -> None:
        """What the master that is followed wrote when; blocks."""
        messages = self.epochs.messages.adopted(tables[MESSAGES], empty=empty)
        pulls = self.epochs.pulls.adopted(tables[PULLS], empty=empty)
        now = replace(self.epochs, messages=messages, pulls=pulls)
        if now != self.epochs:
            self._write(now)

    def intend_cut(self, message_end: int, pull_end: int) -> None:
        """Both logs will end here, whatever happens; blocks."""
        self._write(
            Epochs(
                messages=self.epochs.messages.cut(message_end),
                pulls=self.epochs.pulls.cut(pull_end),
                message_cut=message_end,
                pull_cut=pull_end,
            )
        )

    def cut_done(self) -> None:
        if self.epochs.message_cut is not None or self.epochs.pull_cut is not None:
            self._write(replace(self.epochs, message_cut=None, pull_cut=None))

    def _write(self, epochs: Epochs) -> None:
        self._disk.write_atomic(self._path, leader_epochs.encode(epochs))
        self.epochs = epochs


def redo_cut(segments: SegmentedLog, end: int | None) -> None:
    """A start: finish what was begun, before the log is read."""
    if end is not None and segments.end >= end:
        log.warning("a cut that was begun is done", log=segments.directory.name, offset=end)
        segments.cut(end)
