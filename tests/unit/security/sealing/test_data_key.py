"""Data keys: the same rows are the same bytes, nothing changed opens, no nonce is used twice."""

import random

import pytest

from ternmq.batch.layout import Encoding
from ternmq.batch.seal import SEAL_SIZE, key_of, read_seal
from ternmq.core.errors import Corrupt
from ternmq.core.ids import ProducerId
from ternmq.security.sealing.data_key import DataKey

KEY = DataKey(7, "orders", bytes(range(32)))
ZSTD = Encoding.ZSTD


def number(sequence: int, producer: int = 1) -> bytes:
    return ProducerId(start_ms=5, random=producer).message_id(sequence).to_bytes(16, "big")


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize("body", [b"", b"x", b"small body", b"abc" * 5_000])
def test_what_is_encrypted_opens(body: bytes, encoding: Encoding) -> None:
    cipher, seal = KEY.encrypt(body, number(3), number(3), encoding)

    assert KEY.decrypt(cipher, seal, number(3)) == body
    assert (len(seal), key_of(seal)) == (SEAL_SIZE, 7)
    assert not body or len(body) < 5 or body[:9] not in cipher


def test_large_bodies_are_compressed_before_they_are_encrypted() -> None:
    cipher, seal = KEY.encrypt(b"abc" * 5_000, number(3), number(3), ZSTD)

    assert len(cipher) < 200
    assert read_seal(seal).raw_size == 15_000


def test_the_same_row_again_is_the_same_bytes_and_another_one_is_not() -> None:
    first = KEY.encrypt(b"body", number(3), number(3), ZSTD)
    again = DataKey(7, "orders", bytes(range(32))).encrypt(b"body", number(3), number(3), ZSTD)
    others = [
        KEY.encrypt(b"body", number(4), number(4), ZSTD),
        KEY.encrypt(b"body", number(3, producer=2), number(3, producer=2), ZSTD),
        DataKey(8, "orders", bytes(32)).encrypt(b"body", number(3), number(3), ZSTD),
    ]

    assert again == first
    assert first[0] not in [cipher for cipher, _ in others]


def test_a_body_belongs_to_its_message_and_its_key() -> None:
    cipher, seal = KEY.encrypt(b"body", number(3), b"an id of its own", ZSTD)

    assert KEY.decrypt(cipher, seal, b"an id of its own") == b"body"
    for key, message_id in [
        (KEY, number(3)),
        (KEY, b"another id"),
        (DataKey(7, "orders", bytes(32)), b"an id of its own"),
    ]:
        with pytest.raises(Corrupt, match="does not open with key 7"):
            key.decrypt(cipher, seal, message_id)


def test_nothing_that_was_changed_opens_and_nothing_else_is_raised() -> None:
    """Issue 14: truncated, swapped, flipped, of any seed: `Corrupt`, never another error."""
    rng = random.Random(14)
    bodies = [rng.randbytes(rng.randrange(300)) for _ in range(20)]
    sealed = [KEY.encrypt(body, number(at), number(at), ZSTD) for at, body in enumerate(bodies)]
    for _ in range(2_000):
        at = rng.randrange(len(sealed))
        cipher, seal = map(bytearray, sealed[at])
        match rng.randrange(5):
            case 0:
                cipher[rng.randrange(len(cipher))] ^= 1 << rng.randrange(8)
            case 1:
                seal[rng.randrange(len(seal))] ^= 1 << rng.randrange(8)
            case 2:
                del cipher[rng.randrange(len(cipher)) :]
            case 3:
                cipher = bytearray(sealed[(at + 1) % len(sealed)][0])
            case _:
                seal = bytearray(rng.randbytes(rng.randrange(40)))
        with pytest.raises(Corrupt):
            KEY.decrypt(bytes(cipher), bytes(seal), number(at))


def test_a_key_is_never_shown() -> None:
    assert KEY._secret.hex() not in repr(KEY)
    with pytest.raises(Corrupt, match="has 3 bytes") as refused:
        DataKey(1, "t", b"key")
    assert "key'" not in str(refused.value)
