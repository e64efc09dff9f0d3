"""A small file that is replaced as a whole: four letters of what it is, a checksum, the body.

    at  size  field
     0     4  magic
     4     4  crc       CRC-32C of the body
     8     .  body

Little-endian. What the body means, its version first of all, is each format's own. Touches no
file.
"""

import struct

from crc32c import crc32c

from ternmq.batch.layout import Buffer
from ternmq.core.errors import Corrupt

FRAME = struct.Struct("<4sI")


def pack_whole(magic: bytes, body: bytes) -> bytes:
    return FRAME.pack(magic, crc32c(body)) + body


def read_whole(content: Buffer, magic: bytes, what: str, *, body_min: int = 0) -> memoryview:
    """The body of a file that was packed so. `what` is its name in errors: raises `Corrupt`."""
    if len(content) < FRAME.size + body_min:
        raise Corrupt(f"{what} is too short")
    found, crc = FRAME.unpack_from(content)
    body = memoryview(content)[FRAME.size :]
    if found != magic or crc != crc32c(body):
        raise Corrupt(f"{what} does not match its checksum")
    return body


def check_version(found: int, known: int, what: str) -> None:
    if found != known:
        raise Corrupt(f"{what} has version {found}, this is version {known}")
