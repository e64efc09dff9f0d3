"""A log that a master leads and replicas copy: what is the same whatever its records are.

How far it goes, is on disk and is safe; the one group that is on its way to the disk; what came
from a master and is to be written; its bytes for those who copy it. Does not know what a record is,
nor when it counts: a log says what it keeps of records that it receives (`_hold`, `_let_go`) and
how its bytes get to the disk (`_write`).
"""

from typing import Generic, Protocol, TypeVar

from ternmq.core.errors import TernError
from ternmq.storage.files.disk import Buffer
from ternmq.storage.log.replica_input import LogRecord, Received, ReplicaInput, StreamFormat
from ternmq.storage.log.segmented_log import SegmentedLog
from ternmq.storage.log.write_plan import WritePlan


class StagedRecords(Protocol):
    """Records that have their places."""

    plan: WritePlan
    written: bool


StagedT = TypeVar("StagedT", bound=StagedRecords)


class ReplicatedLog(Generic[StagedT]):
    """The part that message log, pull log and journal share."""

    def __init__(self, source: SegmentedLog, form: StreamFormat, safe_offset: int | None) -> None:
        """Without `safe_offset` everything in the log is safe."""
        self._log = source
        self._receiving = ReplicaInput(form, source.end)
        self._in_flight: StagedT | None = None
        self._proven = 0 if source.mark is None else min(source.mark.safe, source.end)
        self.safe_offset = source.end if safe_offset is None else safe_offset

    @property
    def start_offset(self) -> int:
        return self._log.start

    @property
    def end(self) -> int:
        """Everything below is written."""
        return self._log.end

    @property
    def safe_offset(self) -> int:
        """Everything below counts, and is known here to count."""
        return self._log.safe

    @safe_offset.setter
    def safe_offset(self, to: int) -> None:
        self._log.safe = to

    @property
    def acknowledged(self) -> int:
        """Everything below was acknowledged, by what is left on this disk: more than is visible
        after a start. Whoever leads has it, or is damaged."""
        return max(self.safe_offset, self._proven)

    def prove(self, to: int) -> None:
        """Records in the log say that everything below was acknowledged."""
        self._proven = max(self._proven, min(to, self._log.end))

    @property
    def synced_offset(self) -> int:
        """Everything below is on disk: retention and the like may rely on it."""
        return self._log.synced

    @property
    def failed(self) -> TernError | None:
        """Set after an fsync error: nothing can be appended until a restart; reads go on."""
        return self._log.failed

    def fail(self, event: str, error: TernError) -> None:
        """Nothing is written any more until a restart."""
        self._log.fail(event, error)

    def read_raw(self, offset: int, size: int) -> bytes:
        """Up to `size` written bytes as they lie there, unchecked, maybe fewer; any thread. None
        at the end. Raises `Corrupt` before the start."""
        return self._log.read_some(offset, size)

    # Leading

    def _plan(self) -> WritePlan:
        """Where the next group goes."""
        assert self._in_flight is None, "commit or abandon the group before"
        return self._log.plan()

    def _landed(self, staged: StagedT) -> None:
        """The group is written: the next one may be staged."""
        assert self._in_flight is staged
        assert staged.written
        self._in_flight = None

    def abandon(self, staged: StagedT) -> None:
        """Forget a group whose write failed, or that was never written."""
        assert self._in_flight is staged
        assert not staged.written, "what is written must be committed"
        self._in_flight = None

    # Following

    @property
    def received_end(self) -> int:
        """Where the next bytes of the master have to begin."""
        return self._receiving.end

    def receive(self, offset: int, data: Buffer) -> None:
        """Check bytes of the master and add them to what `take` gives; memory only. They follow on
        `received_end`; what they end with need not be whole. Raises `ProtocolError`, `Corrupt`."""
        assert self._in_flight is None, "a master does not receive"
        self._hold(self._receiving.add(offset, data))

    def take(self) -> Received | None:
        """Everything received since the last time, to be written; None if there is nothing."""
        return self._receiving.take()

    def write_received(self, received: Received, *, sync: bool) -> None:
        """Put what was received on disk, or with `sync=False` into the operating system; blocks.
        When this raises, none of it is there and `forget_received` has to follow."""
        plan = self._log.plan()
        assert received.start == self._log.end
        for _, record in received.records:
            plan.place(record)
        self._write(plan, sync=sync)
        received.written = True

    def forget_received(self) -> None:
        """Drop what was received and not written: the log goes on at `end`; memory only."""
        self._receiving.reset(self._log.end)
        self._let_go(self._log.end)

    def cut(self, to: int) -> None:
        """Cut off the suffix from `to` on; blocks. Use `EpochHistory.truncate`, which can be
        redone."""
        self._in_flight = None  # Written or not, it is of the past.
        self._proven = min(self._proven, to)
        if to < self._log.end:
            self._log.cut(to)
        self.forget_received()

    # What a log does its own way

    def _write(self, plan: WritePlan, *, sync: bool) -> None:
        self._log.write(plan, sync=sync)

    def _hold(self, records: list[LogRecord]) -> None:
        """Keep records that were received."""

    def _let_go(self, end: int) -> None:
        """What was received from here on is not in the log."""
