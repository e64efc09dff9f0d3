"""When the rows of a delayed batch are due, as one array of times. By numpy, never row by row."""

import numpy as np

from ternmq.batch.layout import DUE_MAX_MS, Attribute, Column, ColumnPart
from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt


def due_times(view: BatchView, received_at_ms: int) -> np.ndarray:
    """UTC milliseconds, int64, one a row; delays count from `received_at_ms`, the server's clock.

    The batch has passed `batch.check`, so that the values are there and within a date's limits.
    """
    packed = view.buffer(Column.DUE, ColumnPart.VALUES)
    if packed is None or len(packed) != 8 * view.count:
        raise Corrupt("the batch has no due time for every row")
    times = np.frombuffer(packed, dtype="<i8")
    if view.attributes & Attribute.RELATIVE:
        return np.minimum(times + np.int64(received_at_ms), DUE_MAX_MS)
    return times
