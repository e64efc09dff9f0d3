"""Rows of a stored batch as a consumer gets them: an envelope, and as much of it as pays off.

Most of a batch is wanted: it goes out as it lies in the log. A part of it: it is cut. A few rows
from all over it, which is what failed and comes again: they are picked out, or (where the consumer
can not read that, or bodies are compressed) the bodies of the others are left out. A batch that
cannot be made smaller, because of a column that nobody can read, goes out whole.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from ternmq.batch.envelope import ALONE, PICKED, WHOLE, ErrorRow, pack_envelope
from ternmq.batch.layout import Buffer
from ternmq.batch.rows.cut import cut, thin
from ternmq.batch.rows.pick import pick
from ternmq.broker.delivery.handout import Slice
from ternmq.core.units import KIB
from ternmq.wire.messages.pull import LeftOut

THIN_SIZE_MIN = 256 * KIB  # Smaller ones are sent as they are: less work for the broker.
THIN_AGAIN_SIZE_MIN = 64 * KIB  # Consumers had these once: it is their work that is spared.
FEW_SHARE = 8  # Less than an eighth of the rows is wanted.
PICK_SIZE_MIN = 4 * KIB  # Smaller ones are sent with all rows.
PICK_ROWS_MAX = 64  # More are picked slower than their batch is made thin.


class Envelopes:
    """What the slices of one hand-out, or of a read, have in common."""

    def __init__(
        self,
        lease: int,
        lane: int,
        *,
        alone: bool = False,
        errors: Sequence[ErrorRow] = (),
        picks: bool = False,
    ) -> None:
        self._lease = lease
        self._lane = lane
        self._flags = ALONE if alone else 0
        self._picks = picks
        self._errors = sorted(errors)
        self._firsts = [row[0] for row in self._errors]
        self._ends = [row[1] for row in self._errors]

    def wrap(self, piece: Slice, batch: Buffer) -> list[Buffer]:
        """The envelope and the batch, or what is wanted of it."""
        try:
            return self._wrap(piece, batch, smaller=True)
        except Exception:
            return self._wrap(piece, batch, smaller=False)

    def _wrap(self, piece: Slice, batch: Buffer, *, smaller: bool) -> list[Buffer]:
        entry, selection, attempts = piece
        if attempts and max(attempts) == 1:
            attempts = []
        flags = self._flags
        first, end = selection[0][0], selection[-1][1]
        few = smaller and _few(piece)
        picked = None
        if few and self._picks and attempts and _size(piece) >= PICK_SIZE_MIN:
            picked = pick(batch, selection) if len(piece.attempts) <= PICK_ROWS_MAX else None
        if picked is not None:
            batch = picked
            flags |= PICKED
        elif few and _size(piece) >= (THIN_AGAIN_SIZE_MIN if attempts else THIN_SIZE_MIN):
            batch = thin(batch, selection)
        elif smaller and 4 * (end - first) < 3 * entry.count:
            part = cut(batch, first, end)
            batch = part.batch
            selection = [(a - part.first_row, b - part.first_row) for a, b in selection]
        else:
            flags |= WHOLE
        head = pack_envelope(
            lease=self._lease,
            lane=self._lane,
            selection=selection,
            attempts=attempts,
            batch_size=len(batch),
            errors=self._errors_of(piece),
            flags=flags,
        )
        return [head, batch]

    def left_out(self, piece: Slice) -> LeftOut:
        """An envelope for a consumer that gets the batch elsewhere."""
        entry, selection, attempts = piece
        return LeftOut(
            lease=self._lease,
            lane=self._lane,
            base=entry.base_sequence,
            stored_at_ms=entry.stored_at_ms,
            ranges=selection,
            attempts=attempts if attempts and max(attempts) > 1 else [],
            errors=list(self._errors_of(piece)),
        )

    def _errors_of(self, piece: Slice) -> Sequence[ErrorRow]:
        """Why rows of this batch failed; the ranges of errors do not overlap."""
        if not self._errors:
            return ()
        base, count = piece.entry.base_sequence, piece.entry.count
        return self._errors[
            bisect_right(self._ends, base) : bisect_left(self._firsts, base + count)
        ]


def _size(piece: Slice) -> int:
    """About how many bytes of the batch lie between its first wanted row and its last."""
    wanted = piece.selection[-1][1] - piece.selection[0][0]
    return piece.entry.size * wanted // piece.entry.count


def _few(piece: Slice) -> bool:
    """Are the rows few and far between?"""
    selection = piece.selection
    if len(selection) == 1:
        return False
    rows = sum(end - first for first, end in selection)
    return FEW_SHARE * rows < selection[-1][1] - selection[0][0]
