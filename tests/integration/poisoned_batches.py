"""Batches that releases before 0.2 stored and that no door lets in today (findings C1 and C3)."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import zstandard

from ternmq.batch import check
from ternmq.batch.compression import CHUNK
from ternmq.batch.encoder import Origin, Section, assemble
from ternmq.batch.layout import Attribute, Column, ColumnPart, Encoding, Type
from ternmq.core.clock import SystemClock
from ternmq.core.ids import ProducerId

DATA, OFFSETS, VALUES = ColumnPart.DATA, ColumnPart.OFFSETS, ColumnPart.VALUES
EXPIRES = int(Attribute.EXPIRES)
RELATIVE = int(Attribute.RELATIVE)
NO_DATE_MS = 2**62
_numbers = itertools.count(1)


def _i4(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


POISON: dict[str, tuple[list[Section], int]] = {
    "key without offsets": ([Section(Column.KEY, DATA, Type.UTF8, b"abc")], 0),
    "key that is no text": (
        [
            Section(Column.KEY, OFFSETS, Type.UTF8, _i4(0, 1, 2)),
            Section(Column.KEY, DATA, Type.UTF8, b"\xff\xfe"),
        ],
        0,
    ),
    "order key without offsets": ([Section(Column.ORDER_KEY, DATA, Type.UTF8, b"abc")], 0),
    "order key that is no text": (
        [
            Section(Column.ORDER_KEY, OFFSETS, Type.UTF8, _i4(0, 1, 2)),
            Section(Column.ORDER_KEY, DATA, Type.UTF8, b"\xff\xfe"),
        ],
        0,
    ),
    "origin without offsets": ([Section(Column.ORIGIN_APP, DATA, Type.UTF8, b"abc")], 0),
    "trace without offsets": ([Section(Column.TRACE, DATA, Type.UTF8, b"abc")], 0),
    "id without offsets": ([Section(Column.EXPLICIT_ID, DATA, Type.BINARY, b"abc")], 0),
    "properties of types only": (
        [Section(Column.PROPERTIES, ColumnPart.VALUE_TYPES, Type.MAP, bytes(2))],
        0,
    ),
    "born as bytes": ([Section(Column.BORN, VALUES, Type.UINT8, bytes(2))], 0),
    "expire as bytes": ([Section(Column.EXPIRE, VALUES, Type.UINT8, bytes(2))], EXPIRES),
    "priority as numbers": ([Section(Column.PRIORITY, VALUES, Type.INT64, bytes(16))], 0),
    "no date": ([], 0),
}
"""Of two rows each: columns, and attributes of the batch."""


def poisoned(what: str, topic: str, *, after_ms: tuple[int, int] | None = None) -> bytearray:
    """A batch with right checksums and two rows, `a` and `b`; perhaps due so long after now."""
    columns, attributes = POISON[what]
    pieces = [
        Section(Column.BODY, OFFSETS, Type.BINARY, _i4(0, 1, 2)),
        Section(Column.BODY, DATA, Type.BINARY, b"ab"),
        *columns,
    ]
    if after_ms is not None:
        due = np.array(after_ms, "<i8").tobytes()
        pieces.append(Section(Column.DUE, VALUES, Type.INT64, due))
        attributes |= RELATIVE
    born_ms = NO_DATE_MS if what == "no date" else SystemClock().now_ms()
    origin = Origin(topic=topic, app="old", producer=ProducerId(1, next(_numbers)))
    return assemble(pieces, 2, 2, origin, 0, born_ms, attributes)


def broken_chunk(topic: str) -> bytearray:
    """Two rows whose chunk claims to be zstd of their size and is not."""
    raw = b"x" * 2_000
    whole = zstandard.ZstdCompressor().compress(raw)
    chunk = whole[:9] + bytes(byte ^ 0x5A for byte in whole[9:])
    pieces = [
        Section(Column.BODY, OFFSETS, Type.BINARY, _i4(0, 1_000, 2_000)),
        Section(
            Column.BODY,
            ColumnPart.CHUNKS,
            Type.BINARY,
            CHUNK.pack(0, 0, len(chunk), len(raw)),
        ),
        Section(Column.BODY, DATA, Type.BINARY, chunk, int(Encoding.ZSTD)),
    ]
    origin = Origin(topic=topic, app="bad", producer=ProducerId(1, next(_numbers)))
    return assemble(pieces, 2, len(raw), origin, 0, SystemClock().now_ms(), 0)


@contextmanager
def open_door() -> Iterator[None]:
    """The door of an older release, for servers in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "check_columns", _anything)
        patch.setattr(check, "DUE_MAX_MS", NO_DATE_MS)
        yield


def _anything(*arguments: Any, **options: Any) -> None:
    """Judge nothing."""
