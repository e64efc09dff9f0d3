"""Compresses the body column in row-aligned chunks, and reads it back safely.

Bodies are compressed by the producer, once. A chunk covers whole rows and at most `CHUNK_SIZE` raw
bytes (a single larger row stands alone), so a broker can hand out part of a batch by copying
chunks, without decompressing. A chunk's raw size is written beside it and is a hard limit when
reading: a zip bomb ends in `Corrupt`, not in memory. LZ4 is imported when the first batch needs it:
it is not part of the smallest installation. Never used by the broker.
"""

import itertools
import struct
from collections.abc import Sequence
from typing import Any

import zstandard

from ternmq.batch.layout import BODY_SIZE_MAX, CHUNK_SIZE, Buffer, Encoding
from ternmq.core.errors import BadConfig, Corrupt

CHUNK = struct.Struct("<IIII")  # first row, offset in the data buffer, size, raw size
WORTH_IT = 0.9  # Keep the compressed form only when it is at least a tenth smaller.
MEAN_BODY_SIZE_MIN = 100  # Smaller bodies are not worth the time (J8).

# Contexts are not safe to share between threads and costly to make; list.pop and append are atomic.
_compressors: list[zstandard.ZstdCompressor] = []
_decompressors: list[zstandard.ZstdDecompressor] = []


def chunk_rows(offsets: Sequence[int]) -> list[int]:
    """First rows of the chunks, plus the row count at the end."""
    count = len(offsets) - 1
    starts = [0]
    start = 0
    for row in range(1, count):
        if offsets[row + 1] - offsets[start] > CHUNK_SIZE:
            starts.append(row)
            start = row
    starts.append(count)
    return starts


def compress(
    data: Buffer, offsets: Sequence[int], encoding: Encoding
) -> tuple[bytes, bytes] | None:
    """Return (chunk table, compressed data), or None where it does not help."""
    starts = chunk_rows(offsets)
    view = memoryview(data)
    table = bytearray()
    chunks: list[bytes] = []
    at = 0
    for first, end in itertools.pairwise(starts):
        raw = view[offsets[first] : offsets[end]]
        chunk = compress_one(raw, encoding)
        table += CHUNK.pack(first, at, len(chunk), len(raw))
        chunks.append(chunk)
        at += len(chunk)
    if at + len(table) > WORTH_IT * len(view):
        return None
    return bytes(table), b"".join(chunks)


def decompress(data: Buffer, table: Buffer, encoding: int) -> bytes:
    """All bodies of a batch, one after the other."""
    view = memoryview(data)
    chunks = list(CHUNK.iter_unpack(table))
    if sum(chunk[3] for chunk in chunks) > BODY_SIZE_MAX:
        raise Corrupt(f"bodies claim more than {BODY_SIZE_MAX} bytes")
    return b"".join(
        decompress_one(view[offset : offset + size], raw_size, encoding)
        for _, offset, size, raw_size in chunks
    )


def compress_one(raw: Buffer, encoding: Encoding) -> bytes:
    """One chunk, or one body alone."""
    if encoding is Encoding.LZ4:
        return bytes(_lz4().compress(raw, store_size=False))
    compressor = _compressors.pop() if _compressors else zstandard.ZstdCompressor(level=1)
    try:
        return compressor.compress(raw)
    finally:
        _compressors.append(compressor)


def decompress_one(chunk: memoryview, raw_size: int, encoding: int) -> bytes:
    """What was compressed, of exactly this size; raises `Corrupt`."""
    if raw_size == 0:
        return b""
    try:
        if encoding == Encoding.LZ4:
            raw = _unpack_lz4(chunk, raw_size)
        elif encoding == Encoding.ZSTD:
            raw = _zstd(chunk, raw_size)
        else:
            raise Corrupt(f"body encoding {encoding} is not known here")
    except zstandard.ZstdError as error:
        raise Corrupt(f"a body chunk does not decompress: {error}") from error
    if len(raw) != raw_size:
        raise Corrupt(f"a body chunk has {len(raw)} bytes, not {raw_size}")
    return raw


def _lz4() -> Any:
    try:
        import lz4.block
    except ImportError:
        raise BadConfig("bodies in LZ4 need a package: pip install 'ternmq[lz4]'") from None
    return lz4.block


def _unpack_lz4(chunk: memoryview, raw_size: int) -> bytes:
    block = _lz4()
    try:
        return bytes(block.decompress(chunk, uncompressed_size=raw_size))
    except block.LZ4BlockError as error:
        raise Corrupt(f"a body chunk does not decompress: {error}") from error


def _zstd(chunk: memoryview, raw_size: int) -> bytes:
    if zstandard.frame_content_size(chunk) != raw_size:
        raise Corrupt("a body chunk claims another size than its table")
    decompressor = _decompressors.pop() if _decompressors else zstandard.ZstdDecompressor()
    try:
        return decompressor.decompress(chunk, max_output_size=raw_size)
    finally:
        _decompressors.append(decompressor)
