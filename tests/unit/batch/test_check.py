"""A broker's door: honest batches pass, anything else is refused with one of our errors."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.batch.check import check_incoming, describe_stored, tag_bit
from ternmq.batch.compression import CHUNK
from ternmq.batch.encoder import Outgoing
from ternmq.batch.layout import BODY_SIZE_MAX, FIXED_SIZE, Column, ColumnPart, Encoding
from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt, ProtocolError, TernError, TooLarge
from ternmq.core.units import MIB
from tests.unit.batch.builders import a_batch, encodings, messages


def resealed(batch: bytearray) -> bytearray:
    """With a right checksum again, as a peer would do who means harm."""
    struct.pack_into("<I", batch, 128, crc32c(memoryview(batch)[132:]))
    return batch


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(messages, min_size=1, max_size=40), encoding=encodings)
def test_what_the_encoder_makes_passes(rows: list[Outgoing], encoding: Encoding) -> None:
    incoming = check_incoming(a_batch(rows, encoding=encoding, stamped=False))

    assert incoming.row_count == len(rows)
    assert incoming.topic == "order.paid"
    assert incoming.priority == max(row.priority for row in rows)
    for row in rows:
        if row.tag is not None:
            assert incoming.tag_bloom & tag_bit(row.tag.encode()) == tag_bit(row.tag.encode())


def test_a_flipped_bit_is_found() -> None:
    batch = a_batch([Outgoing(body=b"a body")], stamped=False)
    batch[-3] ^= 1

    with pytest.raises(Corrupt, match="send it again"):
        check_incoming(batch)


@settings(max_examples=400, deadline=None)
@given(
    rows=st.lists(messages, min_size=1, max_size=10),
    encoding=encodings,
    changes=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 255)), max_size=8),
)
def test_a_resealed_forgery_is_refused_or_harmless(
    rows: list[Outgoing], encoding: Encoding, changes: list[tuple[int, int]]
) -> None:
    """Whatever a peer writes into a batch: one of our errors, or rows that can be read."""
    batch = a_batch(rows, encoding=encoding, stamped=False)
    for at, value in changes:
        batch[132 + at % (len(batch) - 132)] = value
    try:
        check_incoming(resealed(batch))
        view = BatchView(batch)
        for row in range(view.count):
            view.body(row), view.key(row), view.tag(row), view.properties(row)
            view.order_key(row), view.priority(row), view.expire_at_ms(row), view.message_id(row)
    except TernError:
        return


@given(st.binary(max_size=600))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(TernError):
        check_incoming(bytearray(garbage))


def test_a_zip_bomb_is_held_to_its_claim() -> None:
    batch = a_batch([Outgoing(body=b"\0" * 60_000)] * 4, stamped=False)
    place = BatchView(batch).parts()[Column.BODY, ColumnPart.CHUNKS]
    CHUNK.pack_into(batch, place[0], 0, 0, 10, BODY_SIZE_MAX)

    with pytest.raises(ProtocolError, match="chunk"):
        check_incoming(resealed(batch))


def test_a_chunk_that_claims_another_size_than_its_table_is_not_decompressed() -> None:
    honest = a_batch([Outgoing(body=b"\0" * 60_000)], stamped=False)
    small = a_batch([Outgoing(body=b"\0" * 600)], stamped=False)
    data = BatchView(honest).buffer(Column.BODY, ColumnPart.DATA)
    place = BatchView(small).parts()[Column.BODY, ColumnPart.DATA]
    assert data is not None
    small[place[0] : place[0] + place[1]] = bytes(data)[: place[1]].ljust(place[1], b"\0")

    with pytest.raises(Corrupt):
        BatchView(small).bodies()


def test_a_half_message_needs_its_own_command() -> None:
    batch = a_batch([Outgoing(body=b"a")], stamped=False)
    struct.pack_into("<I", batch, 132, 1)

    with pytest.raises(ProtocolError, match="attributes"):
        check_incoming(resealed(batch))


def test_the_topic_must_be_text() -> None:
    batch = a_batch([Outgoing(body=b"a")], stamped=False)
    batch[FIXED_SIZE] = 0xFF

    with pytest.raises(ProtocolError, match="UTF-8"):
        check_incoming(resealed(batch))


@pytest.mark.parametrize("encoding", [Encoding.ZSTD, Encoding.LZ4])
def test_few_bytes_that_would_fill_a_consumer_s_memory_are_refused(encoding: Encoding) -> None:
    """Finding M3: 1,938 bytes became 60 MiB. What is stored already is read all the same."""
    bomb = a_batch([Outgoing(body=bytes(40 * MIB))], encoding=encoding)
    if len(bomb) > 40 * MIB // 1_000:
        check_incoming(bomb)  # LZ4 gains 250 times at most.
        return
    with pytest.raises(TooLarge, match=r"would become 41943040.*smaller messages"):
        check_incoming(bomb)
    assert describe_stored(bomb).body_size == 40 * MIB


def test_what_compresses_well_and_is_not_large_passes() -> None:
    assert check_incoming(a_batch([Outgoing(body=bytes(16 * MIB))])).body_size == 16 * MIB
