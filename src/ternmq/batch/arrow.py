"""A batch as an Arrow record batch, without copying its buffers.

Body, key, order key, tag and times point into the batch's own memory; compressed bodies are
decompressed once. Sequence and stored time are the only columns made anew.
"""

from typing import Any

import numpy as np

from ternmq.batch.layout import Column, ColumnPart, Encoding
from ternmq.batch.view import BatchView


def record_batch(view: BatchView) -> Any:
    """Columns: sequence, stored_at, body, key, order_key, tag, where the batch has them."""
    import pyarrow as pa

    count = view.count
    stored = np.full(count, view.stored_at_ms, dtype=np.int64)
    columns: dict[str, Any] = {
        "sequence": pa.array(view.sequences()),
        "stored_at": pa.array(stored).cast(pa.timestamp("ms", tz="UTC")),
        "body": _binary(pa, view, Column.BODY, pa.binary())
        if view.opened is None
        else pa.array(view.opened.or_none(), pa.binary()),
    }
    if view.buffer(Column.KEY, ColumnPart.DATA) is not None:
        columns["key"] = _binary(pa, view, Column.KEY, pa.utf8())
    if view.buffer(Column.ORDER_KEY, ColumnPart.DATA) is not None:
        columns["order_key"] = _binary(pa, view, Column.ORDER_KEY, pa.utf8())
    if view.buffer(Column.TAG, ColumnPart.VALUES) is not None:
        columns["tag"] = _tags(pa, view)
    return pa.RecordBatch.from_pydict(columns)


def _binary(pa: Any, view: BatchView, column: Column, kind: Any) -> Any:
    compressed = view.parts()[column, ColumnPart.DATA][2] != Encoding.PLAIN
    data = view.raw_bodies() if compressed else view.buffer(column, ColumnPart.DATA)
    buffers = [
        _buffer(pa, view.buffer(column, ColumnPart.VALIDITY)),
        _buffer(pa, view.buffer(column, ColumnPart.OFFSETS)),
        pa.py_buffer(data),
    ]
    return pa.Array.from_buffers(kind, view.count, buffers)


def _tags(pa: Any, view: BatchView) -> Any:
    offsets = view.buffer(Column.TAG, ColumnPart.DICTIONARY_OFFSETS)
    assert offsets is not None
    words = pa.Array.from_buffers(
        pa.utf8(),
        len(offsets) // 4 - 1,
        [
            None,
            _buffer(pa, offsets),
            _buffer(pa, view.buffer(Column.TAG, ColumnPart.DICTIONARY_DATA)),
        ],
    )
    codes = pa.Array.from_buffers(
        pa.int32(),
        view.count,
        [
            _buffer(pa, view.buffer(Column.TAG, ColumnPart.VALIDITY)),
            _buffer(pa, view.buffer(Column.TAG, ColumnPart.VALUES)),
        ],
    )
    return pa.DictionaryArray.from_arrays(codes, words)


def _buffer(pa: Any, data: memoryview | None) -> Any:
    return None if data is None else pa.py_buffer(data)
