"""Takes rows out of columns and lays columns one behind the other, by numpy, never row by row.

Rows are given as an array of row numbers, in the order in which they shall stand afterwards.
"""

from collections.abc import Sequence

import numpy as np

Rows = np.ndarray


def take_bytes(offsets: np.ndarray, data: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """(sizes, bytes) of values of any size; `offsets` has one more entry than there are values."""
    starts = offsets[rows].astype(np.int64)
    sizes = offsets[rows + 1].astype(np.int64) - starts
    if not len(rows):
        return sizes, data[:0]
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows) and in_a_row(rows):
        return sizes, data[int(offsets[first]) : int(offsets[last + 1])]
    total = int(sizes.sum())
    before = np.cumsum(sizes) - sizes
    if len(sizes) and int(sizes.min()) == int(sizes.max()):
        size = int(sizes[0])
        places = (starts[:, None] + np.arange(size, dtype=np.int64)).reshape(-1)
    else:
        places = np.repeat(starts - before, sizes) + np.arange(total, dtype=np.int64)
    return sizes, data[places]


def in_a_row(rows: Rows) -> bool:
    """Each number is one more than the one before it."""
    return len(rows) < 2 or bool((np.diff(rows) == 1).all())


def offsets_of(sizes: np.ndarray) -> np.ndarray:
    """Arrow's int32 offsets of values with these sizes."""
    offsets = np.zeros(len(sizes) + 1, dtype="<i4")
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def join_bytes(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[bytes, bytes]:
    """(offsets, data) of several `take_bytes`, one behind the other."""
    sizes = np.concatenate([sizes for sizes, _ in parts])
    return offsets_of(sizes).tobytes(), b"".join(data.tobytes() for _, data in parts)


def unpack_bits(bits: memoryview | None, count: int) -> np.ndarray:
    """A validity bitmap as booleans; none means that every row has a value."""
    if bits is None:
        return np.ones(count, dtype=bool)
    packed = np.frombuffer(bits, np.uint8)
    return np.unpackbits(packed, count=count, bitorder="little").astype(bool)


def pack_bits(valid: np.ndarray) -> bytes | None:
    """The bitmap of these booleans, or None where all are true."""
    return None if bool(valid.all()) else np.packbits(valid, bitorder="little").tobytes()


def repeated(value: bytes, count: int) -> tuple[np.ndarray, np.ndarray]:
    """One value `count` times, as `take_bytes` answers."""
    data = np.frombuffer(value * count, np.uint8)
    return np.full(count, len(value), dtype=np.int64), data
