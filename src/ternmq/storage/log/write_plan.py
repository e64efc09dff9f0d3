"""Which bytes go into which segment file: a plan made in memory, before anything is written.

A log is a row of files. A segment's file name is the offset of its first byte, so offsets run on
from file to file without a gap, and no record is cut by a file's end. `WritePlan.place` gives the
next record its offset and starts a new segment where the current one is full. Pure memory;
forgetting a plan undoes it.
"""

from ternmq.batch.layout import Buffer


class FilePart:
    """The records of a plan that go into one segment, one after the other."""

    __slots__ = ("base", "buffers", "end", "start")

    def __init__(self, base: int, start: int) -> None:
        self.base = base
        self.start = start
        self.end = start
        self.buffers: list[Buffer] = []


class WritePlan:
    """Where a group of records will be written."""

    __slots__ = ("_limit", "_part", "count", "count_max", "end", "parts", "segment_size")

    def __init__(
        self, *, base: int, end: int, count: int, segment_size: int, count_max: int
    ) -> None:
        self.segment_size = segment_size
        self.count_max = count_max
        self.count = count  # Records in the segment that is being filled.
        self.end = end
        self._limit = base + segment_size
        self._part = FilePart(base, end)
        self.parts = [self._part]

    def room(self, size: int) -> int:
        """Make sure that a record of `size` bytes fits; return the offset it will have."""
        offset = self.end
        part = self._part
        if (offset + size > self._limit or self.count >= self.count_max) and offset > part.base:
            self._part = FilePart(offset, offset)
            self.parts.append(self._part)
            self._limit = offset + self.segment_size
            self.count = 0
        return offset

    def place(self, buffer: Buffer) -> int:
        """Add one record at the end; return its offset."""
        offset = self.room(len(buffer))
        part = self._part
        part.buffers.append(buffer)
        part.end = self.end = offset + len(buffer)
        self.count += 1
        return offset

    @property
    def rolls(self) -> list[int]:
        """Where segments begin that have nothing before this plan, if any do."""
        return [part.base for part in self.parts if part.start == part.base]
