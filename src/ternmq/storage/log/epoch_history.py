"""The history of both logs on disk: the file `epochs`, and cuts that a crash interrupts.

Every change is on disk before it is acted upon: an epoch before its first record is written, the
table of a master before its bytes are. A cut is written down as an intent, done, and struck out; a
start that finds an intent does the cut again before anything else reads the logs, and nothing was
written in between. Marks that reach beyond a cut are lowered before the intent is written.

A broker's two logs are messages and records (the pull log), a delay server's messages and decisions
(the journal): `LogPair`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ternmq.core.errors import Corrupt, DiskFailed, DiskFull, Diverged
from ternmq.core.log import get_logger
from ternmq.storage.files.disk import Disk
from ternmq.storage.log import leader_epochs
from ternmq.storage.log.leader_epochs import MESSAGES, PULLS, Epochs, Starts
from ternmq.storage.log.recovery_report import RecoveryReport
from ternmq.storage.log.replicated_log import ReplicatedLog
from ternmq.storage.log.segmented_log import SegmentedLog

log = get_logger()


@dataclass(frozen=True, slots=True)
class LogPair:
    """The two logs of one member."""

    messages: ReplicatedLog[Any]
    second: ReplicatedLog[Any]
    name: str
    """Of the second one in errors, as a word: records, decisions."""
    key: str
    """And in their details: pull, decision."""

    def details(self, event: str, message: int, second: int) -> dict[str, int]:
        return {f"message_{event}": message, f"{self.key}_{event}": second}


class EpochHistory:
    """Which master wrote which part of both logs."""

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

    def truncate(
        self,
        logs: LogPair,
        message_to: int,
        second_to: int,
        *,
        before: Callable[[], None],
        waits: bool = True,
    ) -> None:
        """Cut both logs off here; blocks, while nothing is written. `before` lowers marks that
        reach further. Raises `Diverged` and leaves everything as it is where that would touch what
        was acknowledged; of a group whose masters do not wait (`waits`), what is visible here."""
        messages, second = logs.messages, logs.second
        safe = messages.safe_offset, second.safe_offset
        if waits:
            safe = messages.acknowledged, second.acknowledged
        if message_to < safe[0] or second_to < safe[1]:
            details = logs.details("to", message_to, second_to) | logs.details("safe", *safe)
            raise Diverged(
                f"the master's history ends at {message_to} (messages) and {second_to} "
                f"({logs.name}); {safe[0]} and {safe[1]} were acknowledged here, so it lacks some "
                "of it. Nothing is deleted. Promote a member that has it, or move this directory "
                "aside",
                **details,
            )
        if message_to >= messages.end and second_to >= second.end:
            messages.cut(messages.end)
            second.cut(second.end)
            return
        log.warning(
            "the logs are cut where the master's history differs",
            **logs.details("from", messages.end, second.end),
            **logs.details("to", message_to, second_to),
        )
        before()
        self.cut(logs, message_to, second_to)

    def cut(self, logs: LogPair, message_to: int, second_to: int) -> None:
        """Cut without asking whether it may be."""
        try:
            self.intend_cut(message_to, second_to)
            logs.messages.cut(message_to)
            logs.second.cut(second_to)
            self.cut_done()
        except (DiskFull, DiskFailed) as error:
            # The intent may be on disk: what is written from here on would be cut off with it.
            logs.messages.fail("a cut was not finished", error)
            logs.second.fail("a cut was not finished", error)
            raise

    def _write(self, epochs: Epochs) -> None:
        self._disk.write_atomic(self._path, leader_epochs.encode(epochs))
        self.epochs = epochs


def redo_cut(segments: SegmentedLog, end: int | None) -> None:
    """A start: finish what was begun, before the log is read."""
    if end is not None and segments.end >= end:
        log.warning("a cut that was begun is done", log=segments.directory.name, offset=end)
        segments.cut(end)
