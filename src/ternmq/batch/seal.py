"""The seal of an encrypted body: which key opens it, and what was encrypted. 30 bytes:

    at  size  field
     0     1  version     1: AES-256-GCM
     1     1  encoding    how the body was compressed before, see `layout.Encoding`
     2     8  key_id      number of the data key; never used twice in a cluster
    10    16  number      producer and message number under which it was encrypted, as a message id
    26     4  raw_size    bytes of the body before compression; a hard limit when reading

A row of the column SEAL has one where its body is encrypted. The body then is the ciphertext and
its tag of 16 bytes, and stays that wherever the row goes: servers cut, merge and copy rows without
a key. Seal and message id are authenticated with the body, so neither a body nor a seal can be put
on another message. Encryption itself is in `security/sealing`. Pure.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ternmq.core.errors import Corrupt, TernError

SEAL = struct.Struct("<BBQ16sI")
SEAL_SIZE = SEAL.size
SEAL_VERSION = 1
TAG_SIZE = 16
"""What an encrypted body has more than a plain one."""


class Seal(NamedTuple):
    """How one body is encrypted."""

    version: int
    encoding: int
    key_id: int
    number: bytes
    raw_size: int


def read_seal(packed: bytes) -> Seal:
    """Raise `Corrupt` where these bytes are no seal that this version can open."""
    if len(packed) != SEAL_SIZE:
        raise Corrupt(f"a seal has {SEAL_SIZE} bytes, not {len(packed)}")
    seal = Seal._make(SEAL.unpack(packed))
    if seal.version != SEAL_VERSION:
        raise Corrupt(f"a seal of version {seal.version}; this release opens {SEAL_VERSION}")
    return seal


def key_of(packed: bytes) -> int:
    """The number of the key alone; 0 where these bytes are too short to have one."""
    return int.from_bytes(packed[2:10], "little")


class OpenedBodies(list[Any]):
    """Bodies of a batch after they were opened: bytes, or why one could not be, which reading it
    raises. So who takes a batch apart row by row meets the error at that row alone."""

    __slots__ = ("failed",)

    def __init__(self, found: Iterable[Any]) -> None:
        super().__init__(found)
        self.failed = any(type(body) is not bytes for body in super().__iter__())
        """Some could not be opened."""

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        if type(found) is bytes:
            return found
        if isinstance(found, TernError):
            raise found.copy()
        return list(OpenedBodies(found)) if self.failed else found

    def __iter__(self) -> Iterator[Any]:
        return self._checked() if self.failed else super().__iter__()

    def _checked(self) -> Iterator[Any]:
        for body in super().__iter__():
            if isinstance(body, TernError):
                raise body.copy()
            yield body

    def error(self, at: int) -> TernError | None:
        """Why this one cannot be read; None: it can."""
        found = super().__getitem__(at)
        return found if isinstance(found, TernError) else None

    def or_none(self) -> list[bytes | None]:
        """None for those that cannot be read."""
        return [None if isinstance(body, TernError) else body for body in super().__iter__()]
