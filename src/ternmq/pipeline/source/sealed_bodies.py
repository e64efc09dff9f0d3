"""Encrypted bodies for Spark: decrypted where keys were given, else as they are, with their seals.

With keys a body that cannot be opened (erased, no key, tampered) is empty, as others that cannot be
read, and its row is marked and counted (`unreadable_rows.py`). Without keys it is ciphertext, and
the property `%seal` has what opens it one day (`sink/sealed_rows.py`). Row by row, for such batches
only.
"""

import pyarrow as pa

from ternmq.batch.view import BatchView
from ternmq.pipeline.sink.sealed_rows import SEAL_NOTE
from ternmq.pipeline.source.unreadable_rows import UnreadableRows


def opened_bodies(view: BatchView, bad: UnreadableRows) -> pa.Array:
    """What the bodies of an opened batch say."""
    assert view.opened is not None
    bodies = view.opened.or_none()
    bad.add("body", [row for row, body in enumerate(bodies) if body is None])
    return pa.array([body or b"" for body in bodies], pa.binary())


def with_seals(properties: pa.Array, view: BatchView) -> pa.Array:
    """The properties of all rows, with the seals of those that are still encrypted."""
    rows = properties.to_pylist()
    for row, seal in enumerate(view.seals()):
        if seal is not None:
            rows[row] = [*rows[row], (SEAL_NOTE, seal.hex())]
    return pa.array(rows, properties.type)
