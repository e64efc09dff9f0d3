"""Header blocks: the table that both sides keep, and what a hostile one can do with it."""

import pytest

from ternmq.rpc.http2.frames import ConnectionFault, FaultCode
from ternmq.rpc.http2.hpack import HeaderDecoder, encode_headers

LIST_MAX = 4_096


def decoded(decoder: HeaderDecoder, block: str) -> list[tuple[str, str]]:
    return [(name, value) for name, value, _ in decoder.decode(bytes.fromhex(block))]


def test_blocks_of_the_standard_are_read_with_their_table() -> None:
    """Three requests on one connection, Huffman-coded (RFC 7541, C.4)."""
    decoder = HeaderDecoder(LIST_MAX)
    common = [(":method", "GET"), (":scheme", "http"), (":path", "/")]

    first = decoded(decoder, "828684418cf1e3c2e5f23a6ba0ab90f4ff")
    assert first == [*common, (":authority", "www.example.com")]
    assert decoder.table_size == 57
    second = decoded(decoder, "828684be5886a8eb10649cbf")
    assert second[3:] == [(":authority", "www.example.com"), ("cache-control", "no-cache")]
    third = decoded(decoder, "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf")
    assert third[-1] == ("custom-key", "custom-value")
    assert decoder.table_size == 164


def test_the_table_drops_the_oldest_and_a_header_larger_than_it_empties_it() -> None:
    decoder = HeaderDecoder(100_000)
    for at in range(100):
        decoder.decode(b"\x40\x02%02d\x20" % at + bytes((65,)) * 32)
    assert decoder.table_size <= 4_096
    assert decoder.decode(b"\xbe")[0][0] == "99"

    decoder.decode(b"\x40\x01x\x7f\x80\x40" + b"v" * 8_319)

    assert decoder.table_size == 0
    with pytest.raises(ConnectionFault):
        decoder.decode(b"\xbe")


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("80", "no number"),
        ("be", "an entry that is not there"),
        ("ff8080808001", "a number of five bytes"),
        ("4002", "a name that is cut off"),
        ("400161", "no value"),
        ("40016101", "a value that is cut off"),
        ("7f", "a number that is cut off"),
        ("3fe21f", "a table that is too large"),
        ("8220", "resized in the middle"),
        ("202020", "resized three times"),
        ("0081ff00", "a name that is no Huffman code"),
    ],
)
def test_a_block_that_is_none_ends_the_connection(block: str, why: str) -> None:
    with pytest.raises(ConnectionFault) as fault:
        HeaderDecoder(LIST_MAX).decode(bytes.fromhex(block))

    assert fault.value.code is FaultCode.COMPRESSION_ERROR, why


@pytest.mark.parametrize("letter", ["0a", "0d", "00"])
def test_line_breaks_and_zeros_end_the_connection(letter: str) -> None:
    """They would be new lines in whatever writes headers down."""
    with pytest.raises(ConnectionFault) as fault:
        HeaderDecoder(LIST_MAX).decode(bytes.fromhex(f"000161 0361{letter}62"))

    assert fault.value.code is FaultCode.PROTOCOL_ERROR


def test_a_list_that_is_too_large_is_cut_and_says_so() -> None:
    decoder = HeaderDecoder(200)
    found = decoder.decode(encode_headers([(f"name-{at}", "v" * 50) for at in range(5)]))

    assert found.cut
    assert len(found) == 2


def test_a_bomb_ends_the_connection() -> None:
    """One large header in the table, named a thousand times in as many bytes."""
    decoder = HeaderDecoder(16_384)
    block = b"\x40\x01x\x7f\x81\x1e" + b"v" * 4_000 + b"\xbe" * 1_000
    with pytest.raises(ConnectionFault) as fault:
        decoder.decode(block)

    assert fault.value.code is FaultCode.ENHANCE_YOUR_CALM


def test_what_is_sent_is_read_again_and_leaves_the_table_alone() -> None:
    sent = [(":status", "200"), ("content-type", "application/grpc"), ("own", "v" * 300)]
    decoder = HeaderDecoder(LIST_MAX)

    assert [header[:2] for header in decoder.decode(encode_headers(sent))] == sent
    assert decoder.table_size == 0
