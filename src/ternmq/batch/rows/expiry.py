"""Which rows of a batch have expired. One byte of the header says whether any row can (D10)."""

import numpy as np

from ternmq.batch.layout import PRODUCER_CRC_AT, Attribute, Buffer, Column, ColumnPart
from ternmq.batch.rows.runs import runs
from ternmq.batch.view import BatchView

_ATTRIBUTES_AT = PRODUCER_CRC_AT + 4
_EXPIRES = int(Attribute.EXPIRES)


def may_expire(batch: Buffer) -> bool:
    """The cheap question, asked of every batch that is handed out."""
    return bool(batch[_ATTRIBUTES_AT] & _EXPIRES)


def expired_rows(view: BatchView, now_ms: int) -> list[tuple[int, int]]:
    """Ranges of rows whose time is over; none of a batch whose times cannot be read."""
    values = view.buffer(Column.EXPIRE, ColumnPart.VALUES)
    if values is None or len(values) != 8 * view.count:
        return []
    over = np.frombuffer(values, dtype="<i8") <= now_ms
    bits = view.buffer(Column.EXPIRE, ColumnPart.VALIDITY)
    if bits is not None:
        valid = np.unpackbits(np.frombuffer(bits, np.uint8), count=view.count, bitorder="little")
        over &= valid.astype(bool)
    return runs(over.tobytes())
