"""Rows of a data frame or an archive whose bodies are encrypted: ciphertext and a note of the seal.

A reader without keys leaves bodies as they are and writes the seal of each into its properties
(`%seal`, hex). Who sends such rows on, under their ids, sends them encrypted: no key is needed for
an archive, nor to bring messages back from one, and an erased key reaches both.
"""

import pyarrow as pa
import pyarrow.compute as pc

from ternmq.batch.seal import SEAL_SIZE
from ternmq.core.errors import BadRequest

SEAL_NOTE = "%seal"


def take_seals(properties: pa.Array) -> tuple[pa.Array, list[bytes | None]]:
    """The properties without seals, and the seals; none where no row has one."""
    if not pa.types.is_map(properties.type) or not _any_sealed(properties):
        return properties, []
    rows: list[list[tuple[str, str]] | None] = properties.to_pylist()
    seals = [_seal(dict(row or ()).get(SEAL_NOTE)) for row in rows]
    left = [None if row is None else [pair for pair in row if pair[0] != SEAL_NOTE] for row in rows]
    return pa.array(left, properties.type), seals


def _any_sealed(properties: pa.Array) -> bool:
    return bool(pc.any(pc.equal(properties.keys, SEAL_NOTE)).as_py())


def _seal(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        seal = bytes.fromhex(text)
    except ValueError:
        seal = b""
    if len(seal) != SEAL_SIZE:
        raise BadRequest(f"the property {SEAL_NOTE} is no seal of {SEAL_SIZE} bytes in hex")
    return seal
