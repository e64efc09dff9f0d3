"""Why rows failed: texts that live in the pull log, and the places where they lie there.

A retry says what went wrong (type, text, traceback). That text is written into the pull log with
the retry itself; the lane keeps one `FailureNote` per range of rows, which is an offset. Until the
record is on disk a note holds its text, and the newest ones do for longer: what failed mostly comes
again soon. `delivery/failure_texts.py` reads the other texts back. Pure memory.

Bounded: a lane keeps at most `NOTES_MAX` notes, one pull reads at most `NOTES_PER_PULL`, all texts
that are kept for longer than needed take at most `RECALL_SIZE`.
"""

from collections import deque
from typing import NamedTuple

import msgspec

from ternmq.core.units import MIB

NOTES_MAX = 100_000
NOTES_PER_PULL = 256
RECALL_SIZE = 4 * MIB
NOTE_SIZE = 200  # Of a note in memory, besides its text.
TYPE_LETTERS_MAX = 256
TEXT_LETTERS_MAX = 4_096
TRACEBACK_LETTERS_MAX = 4_096

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[str, str, str])


class Failed(NamedTuple):
    """What went wrong with a row, the last time; the traceback may be empty."""

    type: str
    text: str
    traceback: str
    at_ms: int


class FailureNote:
    """Where the text of a failure lies."""

    __slots__ = ("at_ms", "offset", "text")

    def __init__(self, *, text: bytes | None = None, at_ms: int = 0, offset: int = -1) -> None:
        self.text = text
        self.at_ms = at_ms
        self.offset = offset

    def written(self, offset: int | None) -> None:
        """The record is in the log, or (None) could not be written: then nothing is known."""
        self.text = None
        self.offset = -1 if offset is None else offset


def pack_failure(kind: str, text: str, traceback: str) -> bytes:
    """The text of a record, cut to its bounds: peers may say more."""
    return _encoder.encode(
        (kind[:TYPE_LETTERS_MAX], text[:TEXT_LETTERS_MAX], traceback[-TRACEBACK_LETTERS_MAX:])
    )


def read_failure(text: bytes, at_ms: int) -> Failed | None:
    try:
        return Failed(*_decoder.decode(text), at_ms)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def failure_line(failed: Failed | None) -> str:
    """What went wrong, in one line; empty: nobody knows."""
    return ": ".join(filter(None, failed[:2])) if failed is not None else ""


class FailureCache:
    """Keeps the texts of the newest notes, of all groups together."""

    def __init__(self, size_max: int = RECALL_SIZE) -> None:
        self._size_max = size_max
        self._size = 0
        self._kept: deque[tuple[FailureNote, int]] = deque()

    def written(self, note: FailureNote, offset: int | None) -> None:
        """The record of a note is in the log, or (None) could not be written."""
        text = note.text
        note.written(offset)
        if offset is None or text is None:
            return
        note.text = text
        self._kept.append((note, len(text) + NOTE_SIZE))
        self._size += len(text) + NOTE_SIZE
        while self._size > self._size_max:
            oldest, size = self._kept.popleft()
            oldest.text = None
            self._size -= size
