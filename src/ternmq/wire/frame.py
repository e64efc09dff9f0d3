"""The frame: how every request, answer and notice is wrapped on a connection.

Little-endian, no padding. A frame is this header and then `size` bytes of payload:

    at  size  field
     0     4  size           bytes of payload that follow, at most FRAME_SIZE_MAX
     4     2  command        see `numbers.Command`
     6     2  flags          see `numbers.Flag`; unknown bits are refused
     8     8  correlation    the request's number; its answer carries the same one
    16     .  payload

Correlations of one sender grow with every frame, so a frame that arrives twice is recognised and
refused. 0 is kept for frames that answer nothing (notices, and the reason before a close). There
is no checksum here: TCP has one, and batches carry their own from producer to consumer.
"""

import struct

import msgspec

from ternmq.core.units import MIB
from ternmq.wire.numbers import Command, Flag

HEADER = struct.Struct("<IHHQ")
HEADER_SIZE = 16
FRAME_SIZE_MAX = 8 * MIB

COMMANDS = frozenset(int(command) for command in Command)
FLAGS_MAX = int(Flag.ANSWER | Flag.ERROR | Flag.ONE_WAY)

assert HEADER.size == HEADER_SIZE, "the table above and the struct disagree"
assert FRAME_SIZE_MAX < 2**32, "size is four bytes"
assert FLAGS_MAX & (FLAGS_MAX + 1) == 0, (
    "the flags fill the low bits, so one comparison checks them"
)


class Frame(msgspec.Struct, gc=False):
    """One received frame. The payload belongs to whoever got the frame; nobody else writes it."""

    command: int
    flags: int
    correlation: int
    payload: bytearray


def pack_header(command: int, flags: int, correlation: int, size: int) -> bytes:
    """The 16 bytes before a payload of `size` bytes."""
    assert size <= FRAME_SIZE_MAX, "a frame larger than the peer accepts: split it before"
    return HEADER.pack(size, command, flags, correlation)
