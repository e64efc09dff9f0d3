"""Splits a delayed batch into pieces, one or more for each hour its rows are due in. Pure.

A row belongs to the hour of its due time, or of the moment it was stored if that is later: an hour
that has passed never gets a row again. Both times are in the stored bytes, so scheduling the same
batch again gives the same pieces. A batch whose rows all belong to one hour stays as it is. One
that is spread over an hour is sorted by due time and cut into smaller pieces, so that a tick reads
what it needs and not everything else. A batch that cannot be cut (`batch.readability`) stays whole,
in the earliest hour of its rows, on every member alike.

A piece in a schedule log is a batch like any other; its stamp says

    offset         where it starts in the hour's file
    base_sequence  the number of its first row there
    epoch          the offset of the batch that it came from
    durable_to     what of this file was on disk
"""

from typing import NamedTuple

import numpy as np

from ternmq.batch.layout import Stamp, stamp
from ternmq.batch.rows.merge import take
from ternmq.batch.view import BatchView
from ternmq.core.units import KIB
from ternmq.delay.hours.hour_index import times_of

PIECE_SIZE = 32 * KIB  # A tick reads whole pieces, of many batches a few rows each.
PIECE_SPAN_MS = 10_000  # Rows due so close to each other stay together, however many they are.


class HourPiece(NamedTuple):
    """Rows of one batch for one hour."""

    hour: int
    batch: bytearray
    row_count: int
    topic_id: int
    due_ms: np.ndarray


def hour_of(due_ms: np.ndarray, stored_at_ms: int, hour_ms: int, floor_ms: int = 0) -> np.ndarray:
    """The start of the hour that each row belongs to; none starts before `floor_ms`."""
    times = np.maximum(due_ms, stored_at_ms)
    hours: np.ndarray = np.maximum(times - times % hour_ms, floor_ms)
    return hours


def split(batch: bytes | memoryview, hour_ms: int, floor_ms: int = 0) -> list[HourPiece]:
    """The pieces of a stored batch, by hour."""
    view = BatchView(batch)
    stamped = view.stamp
    due_ms = times_of(view)
    hours = hour_of(due_ms, stamped.stored_at_ms, hour_ms, floor_ms)
    first = int(hours[0])
    size = max(view.size, view.body_size)  # What reading it costs, also when it is compressed.
    if bool((hours == first).all()) and not _too_wide(size, due_ms):
        return [HourPiece(first, bytearray(batch), view.count, stamped.topic_id, due_ms)]
    try:
        return _cut(view, due_ms, hours, size)
    except Exception:  # Dispatching meets the same and says why.
        whole = bytearray(batch)
        return [HourPiece(int(hours.min()), whole, view.count, stamped.topic_id, due_ms)]


def _cut(view: BatchView, due_ms: np.ndarray, hours: np.ndarray, size: int) -> list[HourPiece]:
    pieces: list[HourPiece] = []
    order = np.lexsort((due_ms, hours))
    sorted_hours = hours[order]
    starts = np.flatnonzero(np.r_[True, np.diff(sorted_hours) != 0])
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        rows = order[start:end]
        for part in _parts(rows, due_ms, size // view.count + 1):
            wanted = np.sort(part)
            pieces.append(
                HourPiece(
                    int(sorted_hours[start]),
                    take(view, wanted),
                    len(wanted),
                    view.topic_id,
                    due_ms[wanted],
                )
            )
    return pieces


def _too_wide(size: int, due_ms: np.ndarray) -> bool:
    return size > PIECE_SIZE and int(due_ms.max()) - int(due_ms.min()) > PIECE_SPAN_MS


def _parts(rows: np.ndarray, due_ms: np.ndarray, row_size: int) -> list[np.ndarray]:
    """Rows of one hour, by due time, cut where they are many and far apart."""
    if not _too_wide(row_size * len(rows), due_ms[rows]):
        return [rows]
    step = max(1, PIECE_SIZE // row_size)
    return [rows[at : at + step] for at in range(0, len(rows), step)]


def place(
    piece: HourPiece, origin: Stamp, *, wal_offset: int, at: int, row: int, durable: int
) -> None:
    """Stamp a piece for its place in the hour's file."""
    stamp(
        piece.batch,
        Stamp(
            offset=at,
            topic_id=piece.topic_id,
            base_sequence=row,
            epoch=wal_offset,
            stored_at_ms=origin.stored_at_ms,
            received_at_ms=origin.received_at_ms,
            durable_to=durable,
            client_ip=origin.client_ip,
            server_ip=origin.server_ip,
            client_port=origin.client_port,
            server_port=origin.server_port,
        ),
    )
