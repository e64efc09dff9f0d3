"""The Huffman code of headers."""

import pytest

from ternmq.rpc.http2.huffman import LETTERS_BY_SIZE, huffman_decode


def packed(text: bytes) -> bytes:
    """The same code written the other way round, by its lengths alone."""
    codes, code, before = {}, 0, 0
    for size, letters in LETTERS_BY_SIZE.items():
        code, before = code << size - before, size
        for letter in letters:
            codes[letter] = format(code, f"0{size}b")
            code += 1
    bits = "".join(codes[letter] for letter in text)
    bits += "1" * (-len(bits) % 8)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))


@pytest.mark.parametrize(
    ("coded", "text"),
    [
        ("f1e3c2e5f23a6ba0ab90f4ff", b"www.example.com"),
        ("a8eb10649cbf", b"no-cache"),
        ("25a849e95ba97d7f", b"custom-key"),
        ("25a849e95bb8e8b4bf", b"custom-value"),
        ("", b""),
    ],
)
def test_texts_of_the_standard_are_read(coded: str, text: bytes) -> None:
    assert huffman_decode(bytes.fromhex(coded)) == text


def test_every_letter_is_read() -> None:
    assert sorted(b"".join(LETTERS_BY_SIZE.values())) == list(range(256))
    for letter in range(256):
        for text in (bytes((letter,)), bytes((letter, 48, letter))):
            assert huffman_decode(packed(text)) == text


@pytest.mark.parametrize(
    "coded",
    ["ffffffff", "00ffffffffff", "f1e3c2e5f23a6ba0ab90f400", "1fff", "ff"],
    ids=["the end", "the end later", "zeros as padding", "a byte of padding", "only padding"],
)
def test_bits_that_are_no_text_are_refused(coded: str) -> None:
    with pytest.raises(ValueError, match="text"):
        huffman_decode(bytes.fromhex(coded))
