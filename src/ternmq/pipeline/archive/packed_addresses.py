"""Addresses that release 0.1 wrote into archives as bytes, read as the text they should be.

The column `client_address` is text. Of messages that came through the delay server, 0.1 wrote the
18 bytes of the packed address there (IPv6 and port), which most readers refuse as text that is not
UTF-8. Whoever reads an archive here gets text; `repair.py` writes such files again, and compaction
mends what it rewrites. A value is taken for packed if it has 18 bytes and one of them is in no
address that is text; so text is never changed.
"""

import pyarrow as pa
import pyarrow.parquet as pq

from ternmq.rpc.address import ADDRESS_SIZE, unpacked_address_text

COLUMN = "client_address"
LETTERS = frozenset(b"0123456789abcdef.:[]")


def is_packed(value: bytes | None) -> bool:
    return value is not None and len(value) == ADDRESS_SIZE and not LETTERS.issuperset(value)


def mended(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a batch, their addresses as text; the batch itself where they are."""
    at = batch.schema.get_field_index(COLUMN)
    if at < 0:
        return batch
    packed = _values(batch.column(at))
    known = packed.dictionary.to_pylist()
    if not any(is_packed(value) for value in known):
        return batch
    texts = [
        unpacked_address_text(value) if is_packed(value) else value.decode("utf-8", "replace")
        for value in known
    ]
    field = batch.schema.field(at)
    found = pa.array(texts, field.type).take(packed.indices)
    return batch.set_column(at, field, found)


def mended_table(table: pa.Table) -> pa.Table:
    """The rows of a table, their addresses as text."""
    return pa.Table.from_batches([mended(each) for each in table.to_batches()], table.schema)


def has_packed(file: pq.ParquetFile) -> bool:
    """Does a file hold such addresses? Reads that column alone."""
    if COLUMN not in file.schema_arrow.names:
        return False
    return any(
        is_packed(value)
        for batch in file.iter_batches(columns=[COLUMN])
        for value in _values(batch.column(0)).dictionary.to_pylist()
    )


def _values(column: pa.Array) -> pa.DictionaryArray:
    return column.cast(pa.binary()).dictionary_encode()
