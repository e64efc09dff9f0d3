"""Encrypts the bodies of a batch that is encoded already: of columns that came from elsewhere.

Rows that are encrypted stay as they are. For Spark's sink, whose rows are columns before they are
messages; `ProducerBatch` and others encrypt before they encode. Rows have no subjects here.
"""

import numpy as np

from ternmq.batch.encoder import Outgoing
from ternmq.batch.layout import Column, ColumnPart, Encoding, Type
from ternmq.batch.rows.cut import CutPiece, reassemble
from ternmq.batch.view import BatchView
from ternmq.client.sealing.keyring import Keyring


def seal_batch(batch: bytearray, keyring: Keyring, encoding: Encoding) -> bytearray:
    """The same rows, encrypted; the keys are there (`Keyring.prepare`)."""
    view = BatchView(batch)
    held = view.seals()
    plain = [
        Outgoing(body=body, explicit_id=view.id_bytes(row))
        for row, body in enumerate(view.bodies())
    ]
    numbers = (view.producer, view.first_sequence)
    bodies, seals = keyring.seal(view.topic, plain, numbers, encoding)
    for row, seal in enumerate(held):
        if seal is not None:
            bodies[row], seals[row] = plain[row].body, seal
    data, packed = b"".join(bodies), b"".join(seal or b"" for seal in seals)
    pieces: list[CutPiece] = [
        (Column.BODY, ColumnPart.OFFSETS, Type.BINARY, Encoding.PLAIN, _offsets(bodies)),
        (Column.BODY, ColumnPart.DATA, Type.BINARY, Encoding.PLAIN, data),
        (Column.SEAL, ColumnPart.OFFSETS, Type.BINARY, Encoding.PLAIN, _offsets(seals)),
        (Column.SEAL, ColumnPart.DATA, Type.BINARY, Encoding.PLAIN, packed),
    ]
    for (column, part), (_, _, coded, kind) in view.parts().items():
        if column not in (Column.BODY, Column.SEAL):
            buffer = view.buffer(column, part)
            assert buffer is not None
            pieces.append((column, part, kind, coded, buffer))
    return reassemble(batch, pieces, 0, view.count, len(data))


def _offsets(values: list[bytes] | list[bytes | None]) -> bytes:
    sizes = np.fromiter((len(value or b"") for value in values), "<i4", len(values))
    return np.concatenate(([0], np.cumsum(sizes))).astype("<i4").tobytes()
