"""Bare bodies: the short way says what the long way says, or nothing."""

import struct

from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.batch.bare_bodies import pack_names, read_bare, read_bare_half, write_bare
from ternmq.batch.check import check_incoming, describe_stored
from ternmq.batch.encoder import Due, Outgoing, encode_bodies, encode_messages
from ternmq.batch.half import HalfInfo, check_half, pack_info, read_info
from ternmq.batch.layout import DIRECTORY_ENTRY_SIZE, FIXED_SIZE, Encoding
from ternmq.batch.view import BatchView
from ternmq.core.errors import TernError
from tests.unit.batch.builders import ORIGIN

sizes = st.lists(st.integers(0, 90), min_size=1, max_size=20)


def bare(lengths: list[int]) -> bytearray:
    bodies = [b"x" * size for size in lengths]
    return encode_bodies(bodies, origin=ORIGIN, first_sequence=7, born_at_ms=5)


HALF = HalfInfo(transaction=bytes(range(16)), first_check_ms=7)


def bare_half(body: bytes, sequence: int = 7) -> bytearray:
    return encode_bodies(
        [body],
        origin=ORIGIN,
        first_sequence=sequence,
        born_at_ms=5,
        transaction=pack_info(HALF),
    )


def resealed(batch: bytearray) -> bytearray:
    """With a right checksum again, as a peer would do who means harm."""
    struct.pack_into("<I", batch, 128, crc32c(memoryview(batch)[132:]))
    return batch


@settings(max_examples=100, deadline=None)
@given(lengths=sizes)
def test_what_is_written_is_recognised_and_read_the_same_way(lengths: list[int]) -> None:
    batch = bare(lengths)
    known = read_bare(batch)

    assert known is not None
    assert known.row_count == len(lengths) and known.body_size == sum(lengths)
    assert describe_stored(batch) == check_incoming(batch)


@settings(max_examples=60, deadline=None)
@given(body=st.binary(max_size=100), sequence=st.integers(0, 1 << 30))
def test_a_single_body_has_the_bytes_that_the_long_way_writes(body: bytes, sequence: int) -> None:
    long_way = encode_messages(
        [Outgoing(body=body, born_at_ms=5)], origin=ORIGIN, first_sequence=sequence
    )

    assert encode_bodies([body], origin=ORIGIN, first_sequence=sequence, born_at_ms=5) == long_way


@settings(max_examples=500, deadline=None)
@given(
    lengths=sizes,
    changes=st.lists(
        st.tuples(st.integers(0, FIXED_SIZE + 80), st.integers(0, 255)), min_size=1, max_size=4
    ),
)
def test_whatever_is_changed_the_short_way_passes_nothing_that_the_long_way_refuses(
    lengths: list[int], changes: list[tuple[int, int]]
) -> None:
    batch = bare(lengths)
    for at, value in changes:
        batch[at % len(batch)] = value
    resealed(batch)
    known = read_bare(batch)
    try:
        told = describe_stored(batch)
    except TernError:
        assert known is None
    else:
        assert known is None or tuple(known) == tuple(told)[:6]


def test_offsets_that_fall_or_lie_over_each_other_are_left_to_the_long_way() -> None:
    at = len(bare([4, 4])) - 8 - 16
    for numbers in ((0, 9, 8), (1, 4, 8), (0, 4, 7), (0, -4, 8)):
        batch = bare([4, 4])
        struct.pack_into("<iii", batch, at, *numbers)
        assert read_bare(resealed(batch)) is None, numbers


def test_offsets_of_many_rows_are_held_to_the_same() -> None:
    good = bare([1] * 300)
    assert read_bare(good) is not None
    at = len(good) - 304 - 1_208
    for number, value in ((0, 1), (150, 200), (300, 299)):
        batch = bytearray(good)
        struct.pack_into("<i", batch, at + 4 * number, value)
        assert read_bare(resealed(batch)) is None, number


def test_due_times_compression_and_other_columns_are_not_bare() -> None:
    body = [b"x" * 200]
    others = [
        encode_bodies(body, origin=ORIGIN, first_sequence=0, born_at_ms=5, due=Due(7, False)),
        encode_bodies(body, origin=ORIGIN, first_sequence=0, born_at_ms=5),
        encode_messages([Outgoing(body=b"x", key="k")], origin=ORIGIN, first_sequence=0),
    ]
    for batch in others:
        assert read_bare(batch) is None
        check_incoming(batch)
    plain = encode_bodies(
        body, origin=ORIGIN, first_sequence=0, born_at_ms=5, encoding=Encoding.PLAIN
    )
    assert read_bare(plain) is not None


def test_a_cut_off_or_damaged_batch_is_never_bare() -> None:
    batch = bare([10])
    for end in (0, 3, FIXED_SIZE, FIXED_SIZE + DIRECTORY_ENTRY_SIZE, len(batch) - 8):
        assert read_bare(batch[:end]) is None
    batch[-9] ^= 1

    assert read_bare(batch) is None


def test_names_that_are_no_text_are_left_to_the_long_way() -> None:
    names = pack_names("topic", "app")._replace(packed=b"\xff" * 8)
    batch = write_bare(
        struct.pack("<ii", 0, 1),
        b"x",
        names=names,
        producer=ORIGIN.producer,
        first_sequence=0,
        born_at_ms=5,
    )

    assert read_bare(batch) is None


@settings(max_examples=60, deadline=None)
@given(body=st.binary(max_size=100), sequence=st.integers(0, 1 << 30))
def test_a_single_half_has_the_bytes_that_the_long_way_writes(body: bytes, sequence: int) -> None:
    long_way = encode_messages(
        [Outgoing(body=body, born_at_ms=5)],
        origin=ORIGIN,
        first_sequence=sequence,
        transaction=pack_info(HALF),
    )

    assert bare_half(body, sequence) == long_way


def test_a_single_half_is_recognised_and_says_what_it_belongs_to() -> None:
    batch = bare_half(b"x" * 33)

    assert read_bare_half(batch) is not None and read_bare(batch) is None
    assert read_bare_half(bare([33])) is None
    assert check_half(batch) == (check_incoming(batch, half=True), read_info(BatchView(batch)))
    assert check_half(batch)[1] == HALF


@settings(max_examples=500, deadline=None)
@given(
    size=st.integers(0, 90),
    changes=st.lists(
        st.tuples(st.integers(0, FIXED_SIZE + 120), st.integers(0, 255)), min_size=1, max_size=4
    ),
)
def test_whatever_is_changed_in_a_half_the_short_way_passes_nothing_more(
    size: int, changes: list[tuple[int, int]]
) -> None:
    batch = bare_half(b"x" * size)
    for at, value in changes:
        batch[at % len(batch)] = value
    resealed(batch)
    try:
        told = check_incoming(batch, half=True), read_info(BatchView(batch))
    except TernError:
        told = None
    try:
        short = check_half(batch)
    except TernError:
        short = None

    assert short == told
