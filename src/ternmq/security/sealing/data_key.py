"""A data key: encrypts bodies of one topic, of a period or about one subject, and opens them again.

AES-256-GCM. No two bodies are ever encrypted under the same key and nonce: the key is derived
(HKDF-SHA-256) from the data key and the producer, whose start is told apart by time and 40 random
bits; the nonce is the producer's message number, which it gives out once. So a batch that is made
again from the same rows has the same bytes, as repeats must. Seal and message id are authenticated
with the body (`batch.seal`).

Works on bytes that are handed in; knows no topic settings, servers or clocks. Needs `cryptography`
(the extra `security`), which is loaded with the first key. Never shows a key.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING

from ternmq.batch.compression import MEAN_BODY_SIZE_MIN, WORTH_IT, compress_one, decompress_one
from ternmq.batch.layout import BODY_SIZE_MAX, Encoding
from ternmq.batch.seal import SEAL, SEAL_VERSION, Seal, read_seal
from ternmq.core.errors import BadConfig, Corrupt

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_SIZE = 32
PRODUCER_SIZE = 11
"""Of a message id: who made it. The other five bytes are its number."""
_NONCE_START = bytes(7)
_CIPHERS_MAX = 1024
_PLAIN = int(Encoding.PLAIN)
_INFO = b"tern body 1 "
HOW = "pip install 'ternmq[security]'"


class DataKey:
    """One key, and what it derived lately."""

    __slots__ = ("_ciphers", "_secret", "id", "topic")

    def __init__(self, id: int, topic: str, secret: bytes) -> None:
        if len(secret) != KEY_SIZE:
            raise Corrupt(f"data key {id} of topic {topic!r} has {len(secret)} bytes, not 32")
        self.id = id
        self.topic = topic
        self._secret = secret
        self._ciphers: OrderedDict[bytes, AESGCM] = OrderedDict()

    def __repr__(self) -> str:
        return f"DataKey({self.id}, {self.topic!r})"

    def encrypt(
        self, body: bytes, number: bytes, message_id: bytes, encoding: Encoding
    ) -> tuple[bytes, bytes]:
        """(ciphertext, seal) of a body. `number` is the message's number as an id; `message_id` is
        the id by which it is known, mostly the same."""
        content, packed = body, Encoding.PLAIN
        if encoding is not Encoding.PLAIN and len(body) > MEAN_BODY_SIZE_MIN:
            smaller = compress_one(body, encoding)
            if len(smaller) < WORTH_IT * len(body):
                content, packed = smaller, encoding
        seal = SEAL.pack(SEAL_VERSION, packed, self.id, number, len(body))
        cipher = self._cipher(number[:PRODUCER_SIZE])
        nonce = _NONCE_START + number[PRODUCER_SIZE:]
        return cipher.encrypt(nonce, content, seal + message_id), seal

    def decrypt(self, body: bytes, packed: bytes, message_id: bytes) -> bytes:
        """The body that a seal belongs to; raises `Corrupt` if anything of it was changed."""
        seal = read_seal(packed)
        number = seal.number
        cipher = self._cipher(number[:PRODUCER_SIZE])
        nonce = _NONCE_START + number[PRODUCER_SIZE:]
        try:
            content = cipher.decrypt(nonce, body, packed + message_id)
        except Exception as error:
            raise _not_opened(error, self.id) from None
        if seal.encoding == _PLAIN and len(content) == seal.raw_size:
            return content
        return _unpacked(content, seal)

    def _cipher(self, producer: bytes) -> "AESGCM":
        cipher = self._ciphers.get(producer)
        if cipher is None:
            cipher = self._ciphers[producer] = _derive(self._secret, producer)
            if len(self._ciphers) > _CIPHERS_MAX:
                self._ciphers.popitem(last=False)
        return cipher


def _not_opened(error: Exception, key_id: int) -> Exception:
    """The library is looked at here, where it failed, not for every body."""
    from cryptography.exceptions import InvalidTag

    if not isinstance(error, InvalidTag | ValueError):
        return error
    return Corrupt(
        f"an encrypted body does not open with key {key_id}: it was changed, cut off, or belongs "
        "to another message"
    )


def _unpacked(content: bytes, seal: Seal) -> bytes:
    if seal.encoding != Encoding.PLAIN:
        if seal.raw_size > BODY_SIZE_MAX:
            raise Corrupt(f"an encrypted body claims {seal.raw_size} bytes")
        return decompress_one(memoryview(content), seal.raw_size, seal.encoding)
    if len(content) != seal.raw_size:
        raise Corrupt(f"an encrypted body has {len(content)} bytes, not {seal.raw_size}")
    return content


def _derive(secret: bytes, producer: bytes) -> "AESGCM":
    need_cryptography()
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

    return AESGCM(HKDFExpand(SHA256(), KEY_SIZE, _INFO + producer).derive(secret))


def need_cryptography() -> None:
    """Raises `BadConfig` with what to do where the library is not there."""
    try:
        import cryptography.hazmat.primitives.ciphers.aead  # noqa: F401
    except ImportError:
        raise BadConfig(f"encrypted topics need the package cryptography: {HOW}") from None
