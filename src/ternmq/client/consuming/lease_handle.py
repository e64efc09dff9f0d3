"""The handle of a message that was pulled detached: all that settling it needs, as one text.

It names the broker group, the lease and the sequence, and has the key of the lease, a random number
that the broker told nobody else. So a handle cannot be made up, works in any process, and is to be
kept like a password for as long as the lease lasts.
"""

import base64
import binascii
import struct
from typing import NamedTuple

from ternmq.core.errors import BadRequest

VERSION = 1
FIELDS = struct.Struct("<BQQQ")
HANDLE_SIZE_MAX = 512


class LeaseHandle(NamedTuple):
    """Which message, and what opens it."""

    broker_group: str
    lease: int
    key: int
    sequence: int

    def text(self) -> str:
        packed = FIELDS.pack(VERSION, self.lease, self.key, self.sequence)
        packed += self.broker_group.encode()
        return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def read_handle(text: str) -> LeaseHandle:
    """Of a text from outside; raises `BadRequest`."""
    try:
        if len(text) > HANDLE_SIZE_MAX:
            raise ValueError
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        packed = base64.b64decode(padded, altchars=b"-_", validate=True)
        version, lease, key, sequence = FIELDS.unpack_from(packed)
        broker_group = packed[FIELDS.size :].decode()
    except (ValueError, binascii.Error, struct.error):
        raise BadRequest(f"{text[:60]!r} is no handle of a pulled message") from None
    if version != VERSION or not broker_group or max(lease, key, sequence) >> 62:
        raise BadRequest(f"{text[:60]!r} is no handle of a pulled message (of this version)")
    return LeaseHandle(broker_group, lease, key, sequence)
