"""Bytes of a log as they come from its master: cut into whole records, checked, gathered.

A master sends what it has, without looking for the ends of records. `add` (loop, memory only) joins
a beginning with its rest, checks every record as recovery would (checksum, stamp, place) and adds
it to the open group. `take` hands the group over to be written, so that one write and one sync are
for everything that came meanwhile. Knows nothing of files.
"""

from typing import Protocol

from ternmq.core.errors import ProtocolError
from ternmq.storage.files.disk import Buffer
from ternmq.storage.log.recovery import LogFormat

LogRecord = tuple[int, memoryview]
"""Offset and bytes."""


class StreamFormat(LogFormat, Protocol):
    """A record that can be recognised by its beginning."""

    header_size: int
    """So many bytes tell how long it is."""


class Received:
    """Checked records in a row, to be written by one `write`."""

    __slots__ = ("end", "records", "start", "written")

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.records: list[LogRecord] = []
        self.written = False


class ReplicaInput:
    """What came of one log since the last `take`."""

    def __init__(self, form: StreamFormat, end: int) -> None:
        self._form = form
        self._open = Received(end)
        self._rest: Buffer = b""

    @property
    def end(self) -> int:
        """Where the next bytes have to go on."""
        return self._open.end + len(self._rest)

    def add(self, offset: int, data: Buffer) -> list[LogRecord]:
        """Take bytes that follow on; returns the records that are whole now.

        Raises `ProtocolError` for a gap, `Corrupt` for bytes that do not check: nothing of this
        call is kept then. `data` must not change any more.
        """
        if offset != self.end:
            raise ProtocolError(f"the log goes on at {self.end}, bytes for {offset} were sent")
        view = memoryview(b"".join((self._rest, data)) if self._rest else data)
        found: list[LogRecord] = []
        form, base, size = self._form, self._open.end, len(view)
        at = 0
        while size - at >= form.header_size:
            length = form.size(view[at : at + form.header_size])
            if at + length > size:
                break
            record = view[at : at + length]
            form.check(record, base + at)
            found.append((base + at, record))
            at += length
        self._rest = bytes(view[at:])
        self._open.records += found
        self._open.end = base + at
        return found

    def take(self) -> Received | None:
        """The open group, which is the caller's from now on; None if there is nothing whole."""
        group = self._open
        if not group.records:
            return None
        self._open = Received(group.end)
        return group

    def reset(self, end: int) -> None:
        """Forget what was not written; the log goes on here."""
        self._open = Received(end)
        self._rest = b""
