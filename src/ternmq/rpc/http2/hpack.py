"""HPACK (RFC 7541): header blocks into names and values, and the few blocks that we send.

A decoder belongs to one connection: what a block says is remembered in a table that the next block
points into, so every block is read, also of a call that is refused. What is read is bounded three
ways: the size of the table, the size of a header list (above it headers are read and let go, and
the list says so), and four times that size, where the connection ends: a block of a few bytes can
name a large header ten thousand times.

What we send uses neither the table nor Huffman: it is short and made once. Pure.
"""

from collections import deque

from ternmq.rpc.http2.frames import ConnectionFault, FaultCode
from ternmq.rpc.http2.huffman import huffman_decode

TABLE_SIZE = 4_096
ENTRY_SIZE = 32
"""Counted for every header, beside its letters."""
BOMB_FACTOR = 4
TABLE_UPDATES_MAX = 2
"""At the beginning of one block."""
INTEGER_BYTES_MAX = 4
LONG_TEXT, LONG_TEXT_MAX = 40, 512
LONG_TEXTS_KEPT = 1_000
"""By all connections."""

Header = tuple[str, str, int]
"""Name, value, and what it counts for."""

_STATIC_PAIRS = (
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    *((":status", code) for code in ("200", "204", "206", "304", "400", "404", "500")),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    *(
        (name, "")
        for name in (
            "accept-language",
            "accept-ranges",
            "accept",
            "access-control-allow-origin",
            "age",
            "allow",
            "authorization",
            "cache-control",
            "content-disposition",
            "content-encoding",
            "content-language",
            "content-length",
            "content-location",
            "content-range",
            "content-type",
            "cookie",
            "date",
            "etag",
            "expect",
            "expires",
            "from",
            "host",
            "if-match",
            "if-modified-since",
            "if-none-match",
            "if-range",
            "if-unmodified-since",
            "last-modified",
            "link",
            "location",
            "max-forwards",
            "proxy-authenticate",
            "proxy-authorization",
            "range",
            "referer",
            "refresh",
            "retry-after",
            "server",
            "set-cookie",
            "strict-transport-security",
            "transfer-encoding",
            "user-agent",
            "vary",
            "via",
            "www-authenticate",
        )
    ),
)
STATIC: tuple[Header, ...] = tuple(
    (name, value, len(name) + len(value) + ENTRY_SIZE) for name, value in _STATIC_PAIRS
)
STATIC_COUNT = len(STATIC)


class HeaderList(list[Header]):
    """The headers of one block."""

    cut = False
    """There were more than are taken; those above are not here."""


def _broken(message: str) -> ConnectionFault:
    return ConnectionFault(FaultCode.COMPRESSION_ERROR, message)


class HeaderDecoder:
    """Reads the blocks of one connection, in order."""

    __slots__ = ("_entries", "_list_size_max", "_size", "_size_max")

    def __init__(self, list_size_max: int) -> None:
        self._list_size_max = list_size_max
        self._entries: deque[Header] = deque()
        self._size = 0
        self._size_max = TABLE_SIZE

    @property
    def table_size(self) -> int:
        return self._size

    def decode(self, block: bytes) -> HeaderList:
        """Raises `ConnectionFault` where the block is none, or is too much."""
        found = HeaderList()
        try:
            self._decode(block, found)
        except IndexError:
            raise _broken("a header block ends too early, or points to nothing") from None
        return found

    def _decode(self, block: bytes, found: HeaderList) -> None:
        at, end, total, updates = 0, len(block), 0, 0
        size_max = self._list_size_max
        while at < end:
            first = block[at]
            at += 1
            if first & 0x80:
                number = first & 0x7F
                if number == 0x7F:
                    number, at = _integer(block, at, 0x7F)
                header = self._entry(number)
            elif first & 0x40:
                header, at = self._literal(block, at, first & 0x3F, 0x3F)
                self._remember(header)
            elif first & 0x20:
                updates += 1
                if found or total or updates > TABLE_UPDATES_MAX:
                    raise _broken("the table is resized in the middle of a block")
                number, at = _integer(block, at, 0x1F) if first & 0x1F == 0x1F else (first & 31, at)
                self._resize(number)
                continue
            else:
                header, at = self._literal(block, at, first & 0x0F, 0x0F)
            total += header[2]
            if total <= size_max:
                found.append(header)
                continue
            found.cut = True
            if total > BOMB_FACTOR * size_max:
                raise ConnectionFault(
                    FaultCode.ENHANCE_YOUR_CALM, f"headers of more than {size_max} bytes"
                )

    def _entry(self, number: int) -> Header:
        if number > STATIC_COUNT:
            return self._entries[number - STATIC_COUNT - 1]
        if not number:
            raise _broken("a header without a number")
        return STATIC[number - 1]

    def _literal(self, block: bytes, at: int, number: int, mask: int) -> tuple[Header, int]:
        if number == mask:
            number, at = _integer(block, at, mask)
        if number:
            name = self._entry(number)[0]
        else:
            name, at = _text(block, at)
        value, at = _text(block, at)
        return (name, value, len(name) + len(value) + ENTRY_SIZE), at

    def _remember(self, header: Header) -> None:
        entries = self._entries
        self._size += header[2]
        entries.appendleft(header)
        while self._size > self._size_max:
            self._size -= entries.pop()[2]

    def _resize(self, size: int) -> None:
        if size > TABLE_SIZE:
            raise _broken(f"a table of {size} bytes; it can have {TABLE_SIZE}")
        self._size_max = size
        while self._size > size:
            self._size -= self._entries.pop()[2]


def _integer(block: bytes, at: int, prefix: int) -> tuple[int, int]:
    """A number that did not fit its first byte."""
    number, shift = prefix, 0
    for _ in range(INTEGER_BYTES_MAX):
        byte = block[at]
        at += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise _broken("a number of too many bytes")


def _text(block: bytes, at: int) -> tuple[str, int]:
    first = block[at]
    at += 1
    size = first & 0x7F
    if size == 0x7F:
        size, at = _integer(block, at, 0x7F)
    end = at + size
    if end > len(block):
        raise _broken("a text is longer than its block")
    raw = block[at:end]
    if first & 0x80:
        raw = _unpacked(raw)
    if b"\n" in raw or b"\r" in raw or b"\0" in raw:
        raise ConnectionFault(FaultCode.PROTOCOL_ERROR, "a header with a line break or a zero")
    return raw.decode("latin-1"), end


_long_texts: dict[bytes, bytes] = {}


def _unpacked(coded: bytes) -> bytes:
    """Long texts (a signature) are the same for many calls of one client."""
    keep = LONG_TEXT <= len(coded) <= LONG_TEXT_MAX
    if keep and coded in _long_texts:
        return _long_texts[coded]
    try:
        text = huffman_decode(coded)
    except ValueError as error:
        raise _broken(str(error)) from None
    if keep:
        if len(_long_texts) >= LONG_TEXTS_KEPT:
            _long_texts.clear()
        _long_texts[coded] = text
    return text


def _encoded_integer(number: int, prefix: int, first: int) -> bytes:
    if number < prefix:
        return bytes((first | number,))
    made = bytearray((first | prefix,))
    number -= prefix
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def encode_headers(headers: list[tuple[str, str]]) -> bytes:
    """A block that leaves the other side's table as it is."""
    return b"".join(_encoded(name, value) for name, value in headers)


def _encoded(name: str, value: str) -> bytes:
    for number, known in enumerate(STATIC, 1):
        if known[:2] == (name, value):
            return _encoded_integer(number, 0x7F, 0x80)
    number = next((number for number, known in enumerate(STATIC, 1) if known[0] == name), 0)
    start = _encoded_integer(number, 0x0F, 0)
    return start + (_encoded_text(value) if number else _encoded_text(name) + _encoded_text(value))


def _encoded_text(text: str) -> bytes:
    raw = text.encode("latin-1")
    return _encoded_integer(len(raw), 0x7F, 0) + raw
