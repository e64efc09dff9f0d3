"""The frame header."""

import pytest

from ternmq.wire.frame import FRAME_SIZE_MAX, HEADER, HEADER_SIZE, pack_header
from ternmq.wire.numbers import Command


def test_a_header_reads_back_as_it_was_packed() -> None:
    header = pack_header(Command.PULL, 1, 2**64 - 1, 17)

    assert len(header) == HEADER_SIZE
    assert HEADER.unpack(header) == (17, Command.PULL, 1, 2**64 - 1)


def test_packing_a_frame_that_no_peer_accepts_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        pack_header(Command.PULL, 0, 1, FRAME_SIZE_MAX + 1)
