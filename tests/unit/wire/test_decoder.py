"""The decoder: the same frames out however the bytes are cut, and nothing bad from bad bytes."""

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.core.errors import ProtocolError
from ternmq.wire.decoder import GROWTH, OWN_SIZE_MIN, SHARED_SIZE, FrameDecoder
from ternmq.wire.frame import COMMANDS, FRAME_SIZE_MAX, HEADER, HEADER_SIZE, Frame, pack_header
from ternmq.wire.numbers import Command

SMALL_SHARED = 2 * (OWN_SIZE_MIN + HEADER_SIZE)


def feed(decoder: FrameDecoder, data: bytes, *, chunk: int | None = None) -> list[Frame]:
    """Give `data` to the decoder as a socket would: never more than fits, or than `chunk`."""
    frames: list[Frame] = []
    left = memoryview(data)
    while left:
        buffer = decoder.get_buffer()
        assert len(buffer) > 0
        size = min(len(buffer), len(left), chunk or len(left))
        buffer[:size] = left[:size]
        frames += decoder.received(size)
        left = left[size:]
    return frames


def a_frame(payload: bytes = b"", *, correlation: int = 1, flags: int = 0) -> bytes:
    return pack_header(Command.PUBLISH, flags, correlation, len(payload)) + payload


def a_decoder(*, size_max: int = FRAME_SIZE_MAX, shared_size: int = SHARED_SIZE) -> FrameDecoder:
    return FrameDecoder(bytearray(shared_size), size_max=size_max)


def test_a_frame_comes_out_with_everything_that_went_in() -> None:
    [frame] = feed(a_decoder(), a_frame(b"body", correlation=7, flags=4))

    assert frame == Frame(Command.PUBLISH, 4, 7, bytearray(b"body"))


def test_an_empty_payload_is_a_frame() -> None:
    [frame] = feed(a_decoder(), a_frame())

    assert frame.payload == b""


@pytest.mark.parametrize("chunk", [1, 7, HEADER_SIZE, 1_000, OWN_SIZE_MIN, None])
def test_small_and_large_frames_in_a_row_in_any_chunks(chunk: int | None) -> None:
    payloads = [b"a", b"", bytes(5_000), bytes(OWN_SIZE_MIN + 5), b"b" * 70_000, b"c"]
    data = b"".join(a_frame(payload, correlation=at) for at, payload in enumerate(payloads))
    decoder = a_decoder(shared_size=SMALL_SHARED)

    frames = feed(decoder, data, chunk=chunk)

    assert [bytes(frame.payload) for frame in frames] == payloads
    assert [frame.correlation for frame in frames] == list(range(len(payloads)))
    assert not decoder.partial


def test_every_cut_of_two_frames_gives_the_same_frames() -> None:
    data = a_frame(b"first", correlation=1) + a_frame(b"second", correlation=2)

    for cut in range(len(data) + 1):
        decoder = a_decoder(shared_size=SMALL_SHARED)
        frames = feed(decoder, data[:cut])
        assert decoder.partial == (cut not in (0, len(a_frame(b"first")), len(data)))
        frames += feed(decoder, data[cut:])

        assert [bytes(frame.payload) for frame in frames] == [b"first", b"second"]
        assert not decoder.partial


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3 * OWN_SIZE_MIN), max_size=6),
    seed=st.integers(0, 2**32),
    bad=st.booleans(),
)
def test_any_frames_in_any_chunking(sizes: list[int], seed: int, bad: bool) -> None:
    chance = random.Random(seed)
    payloads = [chance.randbytes(size) for size in sizes]
    data = b"".join(a_frame(payload, correlation=at) for at, payload in enumerate(payloads))
    data += pack_header(Command.PING, 0, 1, FRAME_SIZE_MAX)[:4].ljust(20, b"\xff") if bad else b""
    decoder = a_decoder(shared_size=SMALL_SHARED)
    frames: list[Frame] = []

    while data:
        size = chance.choice([1, 15, 16, 17, chance.randrange(1, 60_000)])
        frames += feed(decoder, data[:size])
        data = data[size:]

    assert [bytes(frame.payload) for frame in frames] == payloads
    assert (decoder.failed is not None) == bad
    assert not decoder.partial


def test_a_payload_is_never_touched_again() -> None:
    decoder = a_decoder(shared_size=SMALL_SHARED)
    first = feed(decoder, a_frame(b"x" * 100) + a_frame(b"y" * 40_000, correlation=2))
    feed(decoder, a_frame(b"z" * 30_000, correlation=3) * 3)

    assert [bytes(frame.payload) for frame in first] == [b"x" * 100, b"y" * 40_000]


def test_a_large_frame_is_received_straight_into_its_payload() -> None:
    decoder = a_decoder()
    data = a_frame(bytes(2 * SHARED_SIZE))
    feed(decoder, data[:SHARED_SIZE])

    buffer = decoder.get_buffer()
    buffer[:] = data[SHARED_SIZE:]
    [frame] = decoder.received(len(buffer))

    assert frame.payload is buffer.obj


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        (HEADER.pack(FRAME_SIZE_MAX + 1, Command.PUBLISH, 0, 1), "at most 8388608"),
        (HEADER.pack(2**32 - 1, Command.PUBLISH, 0, 1), "at most 8388608"),
        (HEADER.pack(1, 9_999, 0, 1), "command 9999"),
        (HEADER.pack(1, 0, 0, 1), "command 0"),
        (HEADER.pack(1, Command.PUBLISH, 8, 1), "flags 0x0008"),
        (b"GET / HTTP/1.1\r\n\r\n", "something else than TernMQ"),
    ],
)
def test_a_bad_header_fails_the_decoder_and_keeps_what_came_before(
    header: bytes, complaint: str
) -> None:
    """Malformed and oversized frames (peers.md 4.4, row 16)."""
    decoder = a_decoder()

    frames = feed(decoder, a_frame(b"good") + header + a_frame(b"after"))

    assert [bytes(frame.payload) for frame in frames] == [b"good"]
    assert isinstance(decoder.failed, ProtocolError)
    assert complaint in decoder.failed.message
    assert not decoder.partial


def test_nothing_comes_out_of_a_failed_decoder() -> None:
    decoder = a_decoder()
    feed(decoder, HEADER.pack(1, 9_999, 0, 1))

    assert feed(decoder, a_frame(b"too late") * 3) == []


def test_a_smaller_limit_holds_until_it_is_lifted() -> None:
    decoder = a_decoder(size_max=10)
    [within] = feed(decoder, a_frame(bytes(10)))
    assert len(within.payload) == 10

    decoder.size_max = 11
    assert len(feed(decoder, a_frame(bytes(11)))) == 1
    assert feed(decoder, a_frame(bytes(12))) == []
    assert decoder.failed is not None


def test_a_header_alone_allocates_nothing() -> None:
    """A claim of 8 MiB costs the sender 8 MiB, not us."""
    decoder = a_decoder()

    feed(decoder, pack_header(Command.PUBLISH, 0, 1, FRAME_SIZE_MAX))

    assert decoder.partial
    assert decoder.held <= HEADER_SIZE


@pytest.mark.parametrize("sent", [100, OWN_SIZE_MIN, 100_000, 1_000_000, 8_000_000])
def test_a_half_sent_frame_holds_little_more_than_what_was_sent(sent: int) -> None:
    decoder = a_decoder()
    tracemalloc.start()
    try:
        for _ in feed(decoder, a_frame(bytes(FRAME_SIZE_MAX))[:sent], chunk=30_000):
            pytest.fail("the frame is not complete")
        current, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert decoder.held <= min(GROWTH * sent, FRAME_SIZE_MAX + HEADER_SIZE)
    assert current <= decoder.held + 20_000 + FRAME_SIZE_MAX + HEADER_SIZE  # The data fed.


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=400), seed=st.integers(0, 2**32))
def test_random_bytes_give_frames_or_a_protocol_error_and_nothing_else(
    data: bytes, seed: int
) -> None:
    decoder = a_decoder(shared_size=SMALL_SHARED)
    chance = random.Random(seed)

    for _ in range(20):
        if chance.random() < 0.5:
            command = chance.choice(sorted(COMMANDS))
            data += HEADER.pack(chance.choice([0, 1, 50, 2**23, 2**23 + 1]), command, 0, 1)
        data += chance.randbytes(chance.randrange(40))
    for frame in feed(decoder, data, chunk=chance.choice([1, 5, 100, None])):
        assert frame.command in COMMANDS
        assert len(frame.payload) <= FRAME_SIZE_MAX

    assert decoder.failed is None or isinstance(decoder.failed, ProtocolError)
    assert decoder.held <= max(OWN_SIZE_MIN + HEADER_SIZE, GROWTH * len(data))


@pytest.mark.parametrize("seed", range(30))
def test_flipped_bits_never_raise(seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(b"".join(a_frame(bytes(size), correlation=size) for size in range(200)))
    for _ in range(5):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    decoder = a_decoder(shared_size=SMALL_SHARED)

    frames = feed(decoder, bytes(data), chunk=chance.choice([13, 1_000, None]))

    assert len(frames) <= 200 or decoder.failed is None
