"""A lazy view of the columns of a batch.

Creating a view reads the fixed header and the directory and nothing else. Columns are read when
asked for and then kept. A broker has checked what it stored (`batch.check`), but a view still
never trusts a size: anything that does not fit raises `Corrupt`. Never copies a buffer before a
value of it is wanted; `batch.arrow` reads plain bodies without copying them at all.
"""

import itertools
import struct
from typing import Any

import numpy as np

from ternmq.batch import compression
from ternmq.batch.layout import (
    DIRECTORY,
    DIRECTORY_ENTRY_SIZE,
    FIXED_SIZE,
    Buffer,
    Column,
    ColumnPart,
    Encoding,
    Stamp,
    producer_crc,
    read_framing,
    read_producer_header,
    read_stamp,
)
from ternmq.batch.properties import PropertyValue, value_from_text
from ternmq.batch.seal import OpenedBodies
from ternmq.batch.trace_context import read_trace
from ternmq.core.errors import Corrupt, TernError
from ternmq.core.ids import ProducerId, explicit_id_text, id_to_text
from ternmq.core.units import align8


class BatchView:
    """One batch, whole or cut, read row by row or column by column."""

    __slots__ = (
        "_bodies",
        "_columns",
        "_data",
        "_header",
        "_opened",
        "_opened",
        "_parts",
        "_producer",
        "_raw",
        "_stamp",
        "base_sequence",
        "count",
        "size",
        "stored_at_ms",
    )

    def __init__(self, data: Buffer) -> None:
        framing = read_framing(data)
        if len(data) < framing.batch_size:
            raise Corrupt(f"batch of {framing.batch_size} bytes ends after {len(data)}")
        self._data = memoryview(data)[: framing.batch_size]
        self._header = header = read_producer_header(data)
        self._stamp = stamp = read_stamp(data)
        self._producer = ProducerId(header.producer_start, header.producer_random)
        self.count = header.count
        self.size = framing.batch_size
        self.base_sequence = stamp.base_sequence
        self.stored_at_ms = stamp.stored_at_ms
        self._parts: dict[tuple[int, int], tuple[int, int, int, int]] = {}
        self._bodies: list[bytes] | None = None
        self._raw: bytes | None = None
        self._opened: OpenedBodies | None = None
        self._columns: dict[int, list[Any]] = {}
        at = align8(FIXED_SIZE + header.topic_size + header.app_size)
        end = at + DIRECTORY_ENTRY_SIZE * header.buffer_count
        if end > framing.header_size:
            raise Corrupt("the buffer directory is longer than the header")
        for column, part, kind, encoding, offset, size in DIRECTORY.iter_unpack(self._data[at:end]):
            if offset + size > framing.batch_size:
                raise Corrupt("a buffer ends behind the batch")
            self._parts[column, part] = (offset, size, encoding, kind)

    @property
    def topic(self) -> str:
        return self._name(FIXED_SIZE, self._header.topic_size)

    @property
    def app(self) -> str:
        return self._name(FIXED_SIZE + self._header.topic_size, self._header.app_size)

    @property
    def topic_id(self) -> int:
        return self._stamp.topic_id

    @property
    def epoch(self) -> int:
        return self._stamp.epoch

    @property
    def first_sequence(self) -> int:
        """The producer's message number of row 0."""
        return self._header.first_sequence

    @property
    def base_born_ms(self) -> int:
        return self._header.base_born_ms

    @property
    def body_size(self) -> int:
        """Bytes of all bodies before compression."""
        return self._header.body_size

    @property
    def attributes(self) -> int:
        return self._header.attributes

    @property
    def producer(self) -> ProducerId:
        return self._producer

    @property
    def stamp(self) -> Stamp:
        return self._stamp

    def check(self) -> None:
        """Raise `Corrupt` unless the producer's checksum matches."""
        if self._header.crc != producer_crc(self._data):
            raise Corrupt("the batch does not match its checksum")

    @property
    def data(self) -> memoryview:
        """All of its bytes, in place."""
        return self._data

    def parts(self) -> dict[tuple[int, int], tuple[int, int, int, int]]:
        """(column, part) -> (offset, size, encoding, type), unknown columns included."""
        return self._parts

    def buffer(self, column: int, part: int) -> memoryview | None:
        """The bytes of one buffer, in place."""
        place = self._parts.get((column, part))
        return None if place is None else self._data[place[0] : place[0] + place[1]]

    def bodies(self) -> list[bytes]:
        """All bodies; read once, then kept."""
        if self._bodies is None:
            offsets = self._offsets(Column.BODY, ColumnPart.OFFSETS, self.count)
            data = self._body_data()
            if offsets[-1] > len(data):
                raise Corrupt("the bodies end behind their data")
            self._bodies = [data[first:end] for first, end in itertools.pairwise(offsets)]
            self._raw = None
        return self._bodies

    @property
    def sealed(self) -> bool:
        """Some bodies are encrypted, and nobody has put in what they say yet."""
        return (Column.SEAL, ColumnPart.DATA) in self._parts and self._opened is None

    @property
    def opened(self) -> OpenedBodies | None:
        """What encrypted bodies say, once a reader has put it in."""
        return self._opened

    def seals(self) -> list[bytes | None]:
        """Of every row: how its body is encrypted; None where it is not."""
        return [seal or None for seal in self._binary(Column.SEAL)]

    def seal(self, row: int) -> bytes | None:
        return self.seals()[row]

    def trace(self, row: int) -> str | None:
        """The context in which it was made, if it has one."""
        return read_trace(self._binary(Column.TRACE)[row])

    def traces(self) -> set[str]:
        """The different ones of all rows."""
        if self.buffer(Column.TRACE, ColumnPart.DATA) is None:
            return set()
        return {text for packed in set(self._binary(Column.TRACE)) if (text := read_trace(packed))}

    def put_bodies(self, bodies: OpenedBodies) -> None:
        """From here on these are the bodies: decrypted, by who has the keys."""
        assert len(bodies) == self.count
        self._bodies, self._raw, self._opened = bodies, None, bodies

    def why_closed(self, row: int) -> TernError | None:
        """Why the body of this row could not be decrypted, where that was tried."""
        return None if self._opened is None else self._opened.error(self.place(row))

    def open_bodies(self) -> None:
        """Decompress them now if they are compressed, so that no body fails to read later; raises
        `Corrupt`."""
        place = self._parts.get((Column.BODY, ColumnPart.DATA))
        if place is not None and place[2] != Encoding.PLAIN and self._bodies is None:
            self._raw = self._body_data()

    def bodies_of(self, first: int, end: int) -> list[bytes]:
        """The bodies of a range of rows."""
        bodies = self.bodies()
        return bodies if end - first == len(bodies) else bodies[first:end]

    def place(self, row: int) -> int:
        """Where a row lies in the columns; another number only where rows were picked."""
        return row

    def sequences(self) -> np.ndarray:
        """Of every row."""
        return np.arange(self.base_sequence, self.base_sequence + self.count, dtype=np.int64)

    def body(self, row: int) -> bytes:
        return (self._bodies or self.bodies())[row]

    def key(self, row: int) -> str | None:
        return self._text(Column.KEY)[row]  # type: ignore[no-any-return]

    def origin_app(self, row: int) -> str:
        """The application that sent this row first; not always `app` in a merged batch."""
        origin = self._text(Column.ORIGIN_APP)[row]
        return self.app if origin is None else origin

    def origin_address(self, row: int) -> bytes:
        """From where it was sent first: IPv6 and port, 18 bytes; empty where that is not known."""
        origin = self._binary(Column.ORIGIN_ADDRESS)[row]
        if origin is not None and len(origin) == 18:
            return bytes(origin)
        ip, port = self._stamp.client_ip, self._stamp.client_port
        return ip + port.to_bytes(2, "big") if any(ip) else b""

    def order_key(self, row: int) -> str | None:
        return self._text(Column.ORDER_KEY)[row]  # type: ignore[no-any-return]

    def order_keys(self) -> list[str | None]:
        return self._text(Column.ORDER_KEY)

    def order_key_bytes(self) -> list[bytes | None]:
        """Order keys as they were sent: text as a rule."""
        kept = self._columns.pop(Column.ORDER_KEY, None)
        values = self._binary(Column.ORDER_KEY)
        self._columns.pop(Column.ORDER_KEY)
        if kept is not None:
            self._columns[Column.ORDER_KEY] = kept
        return values

    def tag(self, row: int) -> str | None:
        return self._tags()[row]  # type: ignore[no-any-return]

    def properties(self, row: int) -> dict[str, PropertyValue]:
        return dict(self._properties()[row])

    def born_at_ms(self, row: int) -> int:
        born = self._numbers(Column.BORN, "q")[row]
        return self._header.base_born_ms if born is None else born

    def priority(self, row: int) -> int:
        return self._numbers(Column.PRIORITY, "B")[row] or 0

    def priorities(self) -> list[int]:
        """Of every row."""
        return [value or 0 for value in self._numbers(Column.PRIORITY, "B")]

    def expire_at_ms(self, row: int) -> int | None:
        return self._numbers(Column.EXPIRE, "q")[row]  # type: ignore[no-any-return]

    def message_id(self, row: int) -> str:
        explicit = self._binary(Column.EXPLICIT_ID)[row]
        if explicit is not None:
            return explicit_id_text(explicit)
        return id_to_text(self._producer.message_id(self._header.first_sequence + row))

    def id_bytes(self, row: int) -> bytes:
        """A row's id as bytes: what a copy of the row carries as its explicit id."""
        explicit = self._binary(Column.EXPLICIT_ID)[row]
        if explicit is not None:
            return bytes(explicit)
        return self.own_id(row)

    def own_id(self, row: int) -> bytes:
        """The id that the producer's numbers make, whatever the row says itself."""
        number = self._producer.message_id(self._header.first_sequence + row)
        return number.to_bytes(16, "big")

    def explicit_ids(self) -> list[bytes | None]:
        """The ids that rows carry themselves; None where the producer's numbers make the id."""
        return [None if one is None else bytes(one) for one in self._binary(Column.EXPLICIT_ID)]

    def raw_bodies(self) -> memoryview:
        """The body data uncompressed: in place where it is stored plain."""
        plain = self.buffer(Column.BODY, ColumnPart.DATA)
        if plain is not None and self._parts[Column.BODY, ColumnPart.DATA][2] == Encoding.PLAIN:
            return plain
        return memoryview(self._body_data())

    def _name(self, at: int, size: int) -> str:
        return bytes(self._data[at : at + size]).decode()

    def _body_data(self) -> bytes:
        if self._raw is not None:
            return self._raw
        data = self.buffer(Column.BODY, ColumnPart.DATA)
        if data is None:
            raise Corrupt("the batch has no bodies")
        encoding = self._parts[Column.BODY, ColumnPart.DATA][2]
        if encoding == Encoding.PLAIN:
            return bytes(data)
        table = self.buffer(Column.BODY, ColumnPart.CHUNKS)
        if table is None:
            raise Corrupt("compressed bodies without a chunk table")
        return compression.decompress(data, table, encoding)

    def _offsets(self, column: int, part: int, count: int) -> list[int]:
        packed = self.buffer(column, part)
        if packed is None or len(packed) != 4 * (count + 1):
            raise Corrupt(f"column {column} lacks its offsets")
        return packed.cast("i").tolist()

    def _valid(self, column: int) -> list[bool] | None:
        bits = self.buffer(column, ColumnPart.VALIDITY)
        if bits is None:
            return None
        if len(bits) * 8 < self.count:
            raise Corrupt(f"column {column} lacks validity bits")
        flags = np.unpackbits(np.frombuffer(bits, np.uint8), count=self.count, bitorder="little")
        return flags.astype(bool).tolist()

    def _binary(self, column: int) -> list[Any]:
        kept = self._columns.get(column)
        if kept is not None:
            return kept
        data = self.buffer(column, ColumnPart.DATA)
        if data is None:
            values: list[Any] = [None] * self.count
        else:
            values = self._slices(
                bytes(data), self._offsets(column, ColumnPart.OFFSETS, self.count)
            )
            valid = self._valid(column)
            if valid is not None:
                values = [v if ok else None for v, ok in zip(values, valid, strict=True)]
        self._columns[column] = values
        return values

    def _text(self, column: int) -> list[Any]:
        kept = self._columns.get(column)
        if kept is None:
            values = self._binary(column)
            del self._columns[column]  # Bytes, which nobody may take for text.
            kept = self._columns[column] = [None if v is None else _decode(v) for v in values]
        return kept

    def _tags(self) -> list[Any]:
        kept = self._columns.get(Column.TAG)
        if kept is not None:
            return kept
        codes = self.buffer(Column.TAG, ColumnPart.VALUES)
        data = self.buffer(Column.TAG, ColumnPart.DICTIONARY_DATA)
        places = self.buffer(Column.TAG, ColumnPart.DICTIONARY_OFFSETS)
        if codes is None or data is None or places is None:
            values: list[Any] = [None] * self.count
        else:
            try:
                words = [_decode(w) for w in self._slices(bytes(data), places.cast("i").tolist())]
                values = [words[code] for code in struct.unpack(f"<{self.count}i", codes)]
            except (IndexError, TypeError, struct.error) as error:
                raise Corrupt("a tag is not in its dictionary") from error
            valid = self._valid(Column.TAG)
            if valid is not None:
                values = [v if ok else None for v, ok in zip(values, valid, strict=True)]
        self._columns[Column.TAG] = values
        return values

    def _numbers(self, column: int, code: str) -> list[Any]:
        kept = self._columns.get(column)
        if kept is not None:
            return kept
        packed = self.buffer(column, ColumnPart.VALUES)
        if packed is None:
            values: list[Any] = [None] * self.count
        else:
            try:
                values = packed.cast(code).tolist()  # type: ignore[call-overload]
            except TypeError as error:
                raise Corrupt(f"column {column} is of another type: {error}") from error
            if len(values) != self.count:
                raise Corrupt(f"column {column} has {len(values)} values, not {self.count}")
            valid = self._valid(column)
            if valid is not None:
                values = [v if ok else None for v, ok in zip(values, valid, strict=True)]
        self._columns[column] = values
        return values

    def _properties(self) -> list[Any]:
        kept = self._columns.get(Column.PROPERTIES)
        if kept is not None:
            return kept
        types = self.buffer(Column.PROPERTIES, ColumnPart.VALUE_TYPES)
        if types is None:
            rows: list[Any] = [{}] * self.count
        else:
            total = len(types)
            pairs = list(
                zip(
                    self._strings(ColumnPart.NAME_OFFSETS, ColumnPart.NAME_DATA, total),
                    self._strings(ColumnPart.VALUE_OFFSETS, ColumnPart.VALUE_DATA, total),
                    types,
                    strict=True,
                )
            )
            ends = self._offsets(Column.PROPERTIES, ColumnPart.OFFSETS, self.count)
            try:
                rows = [
                    {_decode(n): value_from_text(kind, v) for n, v, kind in pairs[first:end]}
                    for first, end in itertools.pairwise(ends)
                ]
            except (ValueError, TypeError) as error:
                raise Corrupt(f"a property does not read as its type: {error}") from error
        self._columns[Column.PROPERTIES] = rows
        return rows

    def _strings(self, offsets: ColumnPart, data: ColumnPart, count: int) -> list[bytes]:
        bytes_ = self.buffer(Column.PROPERTIES, data)
        if bytes_ is None:
            raise Corrupt("properties without names or values")
        return self._slices(bytes(bytes_), self._offsets(Column.PROPERTIES, offsets, count))

    @staticmethod
    def _slices(data: bytes, offsets: list[int]) -> list[bytes]:
        if offsets and (offsets[0] < 0 or offsets[-1] > len(data)):
            raise Corrupt("a column ends behind its data")
        return [data[first:end] for first, end in itertools.pairwise(offsets)]


def _decode(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise Corrupt(f"a name is not UTF-8: {error}") from error
