"""A log that a master leads and replicas copy: what is the same whatever its records are.

How far it goes, is on disk and is safe; what came from a master and is to be written; its bytes for
those who copy it. Does not know what a record is, nor when it counts.
"""

from ternmq.core.errors import TernError
from ternmq.storage.log.replica_input import Received, ReplicaInput, StreamFormat
from ternmq.storage.log.segmented_log import SegmentedLog


class ReplicatedLog:
    """The part that message log, pull log and journal share."""

    def __init__(self, source: SegmentedLog, form: StreamFormat, safe_offset: int | None) -> None:
        """Without `safe_offset` everything in the log is safe."""
        self._log = source
        self._receiving = ReplicaInput(form, source.end)
        self.safe_offset = source.end if safe_offset is None else safe_offset

    @property
    def start_offset(self) -> int:
        return self._log.start

    @property
    def end(self) -> int:
        """Everything below is written."""
        return self._log.end

    @property
    def synced_offset(self) -> int:
        """Everything below is on disk: retention and the like may rely on it."""
        return self._log.synced

    @property
    def failed(self) -> TernError | None:
        """Set after an fsync error: nothing can be appended until a restart; reads go on."""
        return self._log.failed

    @property
    def received_end(self) -> int:
        """Where the next bytes of the master have to begin."""
        return self._receiving.end

    def take(self) -> Received | None:
        """Everything received since the last time, to be written; None if there is nothing."""
        return self._receiving.take()

    def read_raw(self, offset: int, size: int) -> bytes:
        """Up to `size` written bytes as they lie there, unchecked, maybe fewer; any thread. None
        at the end. Raises `Corrupt` before the start."""
        return self._log.read_some(offset, size)
