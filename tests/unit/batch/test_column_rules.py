"""Whatever columns a batch claims, with right checksums: refused, or every reader reads it.

One test is generated from the layout itself: every column, with every set of parts that differs by
one from a right one, of every type, with sizes and contents that are right, wrong and hostile. What
passes `check_incoming` goes through every reader of the project.
"""

import itertools
import math
import struct
from collections.abc import Iterator
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c

from ternmq.batch.arrow import record_batch
from ternmq.batch.check import check_incoming, describe_stored
from ternmq.batch.column_rules import COLUMN_RULES
from ternmq.batch.due import due_times
from ternmq.batch.encoder import Origin, Section, assemble
from ternmq.batch.half import read_info
from ternmq.batch.layout import (
    DIRECTORY,
    DIRECTORY_ENTRY_SIZE,
    DUE_MAX_MS,
    FIXED_SIZE,
    Attribute,
    Column,
    ColumnPart,
    Stamp,
    Type,
    stamp,
)
from ternmq.batch.properties import BYTES, FLOAT, value_from_text, value_to_text
from ternmq.batch.rows.cut import cut, project, thin
from ternmq.batch.rows.expiry import expired_rows, may_expire
from ternmq.batch.rows.merge import ChosenRows, merge, take
from ternmq.batch.rows.pick import PickedView, pick
from ternmq.batch.selector.selector import Selector
from ternmq.batch.selector.tags import TagFilter
from ternmq.batch.view import BatchView
from ternmq.core.errors import ProtocolError, TernError
from ternmq.core.ids import ProducerId
from ternmq.core.units import align8
from ternmq.delay.store.split_by_hour import split
from ternmq.pipeline.source.rows import RowMaker
from ternmq.storage.index.rows import PlaceColumns, searchable
from tests.unit.batch.builders import ORIGIN

ROWS = 3
DUE_MS = 1_700_000_000_000
UNKNOWN = 99
SELECTORS = ("amount > 10 AND key = 'k'", "priority > 3 OR tag = 'vip'", "amount IS NULL")

SPARK = RowMaker(
    pa.schema(
        [
            ("id", pa.utf8()),
            ("body", pa.binary()),
            ("key", pa.utf8()),
            ("tag", pa.utf8()),
            ("order_key", pa.utf8()),
            ("properties", pa.map_(pa.utf8(), pa.utf8())),
            ("born_at", pa.timestamp("us", tz="UTC")),
            ("app", pa.utf8()),
            ("client_address", pa.utf8()),
            ("size", pa.int32()),
        ]
    ),
    topic="x",
    broker_group="main",
)

SHAPES = {
    Type.BINARY: (ColumnPart.OFFSETS, ColumnPart.DATA),
    Type.UTF8: (ColumnPart.OFFSETS, ColumnPart.DATA),
    Type.INT64: (ColumnPart.VALUES,),
    Type.UINT8: (ColumnPart.VALUES,),
    Type.DICTIONARY: (
        ColumnPart.VALUES,
        ColumnPart.DICTIONARY_OFFSETS,
        ColumnPart.DICTIONARY_DATA,
    ),
    Type.MAP: (
        ColumnPart.OFFSETS,
        ColumnPart.NAME_OFFSETS,
        ColumnPart.NAME_DATA,
        ColumnPart.VALUE_OFFSETS,
        ColumnPart.VALUE_DATA,
        ColumnPart.VALUE_TYPES,
    ),
}


def right(part: ColumnPart, kind: int) -> bytes:
    """What a well-meaning producer would put into this part of a column of this type."""
    offsets = np.arange(ROWS + 1, dtype="<i4").tobytes()
    match part:
        case ColumnPart.VALIDITY:
            return b"\x05"
        case ColumnPart.OFFSETS | ColumnPart.NAME_OFFSETS | ColumnPart.VALUE_OFFSETS:
            return offsets
        case ColumnPart.DATA | ColumnPart.NAME_DATA | ColumnPart.VALUE_DATA:
            return b"123"
        case ColumnPart.VALUES:
            width = {Type.INT64: "<i8", Type.UINT8: "u1"}.get(Type(kind), "<i4")
            return np.zeros(ROWS, width).tobytes()
        case ColumnPart.DICTIONARY_OFFSETS:
            return np.array([0, 3], "<i4").tobytes()
        case ColumnPart.DICTIONARY_DATA:
            return b"vip"
        case ColumnPart.CHUNKS:
            return bytes(16)
        case ColumnPart.VALUE_TYPES:
            return bytes(ROWS)


HOSTILE = {
    ColumnPart.VALIDITY: (b"", b"\xff", b"\xff" * 9),
    ColumnPart.OFFSETS: (b"", b"\0" * 4, np.array([0, 1, 2, 2**31 - 1], "<i4").tobytes()),
    ColumnPart.DATA: (b"", b"1\xff3", b"1\xc3\xa9", b"\xed\xa0\x80", b"123" * 40),
    ColumnPart.VALUES: (
        b"",
        b"\xff" * ROWS,
        np.full(ROWS, 7, "<i4").tobytes(),
        np.full(ROWS, -1, "<i4").tobytes(),
        np.full(ROWS, 2**62, "<i8").tobytes(),
        np.full(ROWS, -(2**63), "<i8").tobytes(),
    ),
    ColumnPart.CHUNKS: (b"", bytes(16)),
    ColumnPart.DICTIONARY_OFFSETS: (b"", b"\0" * 4, np.array([0, 2**30], "<i4").tobytes()),
    ColumnPart.DICTIONARY_DATA: (b"", b"\xff\xfe\xfd", b"v\xc3"),
    ColumnPart.NAME_OFFSETS: (b"", np.array([0, 3, 3, 3], "<i4").tobytes()),
    ColumnPart.NAME_DATA: (b"", b"a\xc3\xa9", b"\xff\xff\xff"),
    ColumnPart.VALUE_OFFSETS: (b"", np.array([0, 0, 0, 3], "<i4").tobytes()),
    ColumnPart.VALUE_DATA: (b"", b"1-3", b"--1", b"\xc3\xa9x", b"a=="),
    ColumnPart.VALUE_TYPES: (
        b"",
        bytes([1, 1, 1]),
        bytes([2, 2, 2]),
        bytes([4] * 3),
        b"\x05\x06\xff",
    ),
}


def columns() -> list[int]:
    return [*(int(column) for column in Column if column is not Column.BODY), UNKNOWN]


def part_sets(kind: Type) -> Iterator[tuple[ColumnPart, ...]]:
    """The right parts of a type, with and without validity; one missing; one too many."""
    usual = SHAPES[kind]
    for parts in (usual, (ColumnPart.VALIDITY, *usual)):
        yield parts
        for missing in parts:
            yield tuple(part for part in parts if part is not missing)
        for extra in ColumnPart:
            if extra not in parts:
                yield (*parts, extra)


def variants(column: int) -> Iterator[list[Section]]:
    """Pieces of one column: each shape with right contents, then each part with hostile ones."""
    for kind in Type:
        for parts in part_sets(kind):
            usual = [Section(column, part, kind, right(part, kind)) for part in parts]
            yield usual
            for at, part in enumerate(parts):
                for data in HOSTILE[part]:
                    other = list(usual)
                    other[at] = Section(column, part, kind, data)
                    yield other
            if len(parts) > 1:  # Parts that do not agree about their type.
                mixed = Type.UTF8 if kind is not Type.UTF8 else Type.INT64
                yield [Section(column, parts[0], mixed, usual[0].data), *usual[1:]]
    for unknown in (0, 7, 255):
        yield [Section(column, ColumnPart.VALUES, unknown, bytes(ROWS))]


def a_batch_with(pieces: list[Section], attributes: int = 0, born_ms: int = DUE_MS) -> bytearray:
    offsets = np.arange(ROWS + 1, dtype="<i4").tobytes()
    bodies = [
        Section(Column.BODY, ColumnPart.OFFSETS, Type.BINARY, offsets),
        Section(Column.BODY, ColumnPart.DATA, Type.BINARY, b"abc"),
    ]
    due = np.full(ROWS, DUE_MS, "<i8").tobytes()
    if not any(piece.column == Column.DUE for piece in pieces):
        bodies.append(Section(Column.DUE, ColumnPart.VALUES, Type.INT64, due))
    return assemble([*bodies, *pieces], ROWS, 3, ORIGIN, 7, born_ms, attributes)


def stored(batch: bytearray) -> bytearray:
    at = Stamp(
        offset=4096,
        topic_id=3,
        base_sequence=1_000,
        epoch=2,
        stored_at_ms=DUE_MS,
        received_at_ms=DUE_MS,
        durable_to=4_000,
        client_ip=bytes(15) + b"\1",
    )
    stamp(batch, at)
    return batch


def read_every_way(batch: bytearray) -> None:
    """Every reader there is of stored bytes; none may raise."""
    rows = np.array([0, 2])
    _read_rows(BatchView(batch))
    for smaller in (cut(batch, 1, 2).batch, thin(batch, [(0, 1)]), project(batch, {Column.BODY})):
        _read_rows(BatchView(smaller))
    picked = pick(batch, [(0, 1), (2, 3)])
    assert picked is not None
    assert PickedView(picked, [(0, 1), (2, 3)]).body(2) == b"c"
    view = BatchView(batch)
    _read_rows(BatchView(take(view, rows)))
    origin = Origin(topic="x", app="%delay", producer=ProducerId(1, 2))
    other = BatchView(stored(a_batch_with([])))
    sources = [ChosenRows(view, rows), ChosenRows(other, np.array([1])), ChosenRows(view, rows)]
    merged = merge(sources, origin=origin, first_sequence=0)
    check_incoming(merged)
    _read_rows(BatchView(stored(merged)))
    due_times(view, DUE_MS)
    split(memoryview(batch), 3_600_000)


def _read_rows(view: BatchView) -> None:
    for row in range(view.count):
        view.body(row), view.key(row), view.tag(row), view.properties(row), view.order_key(row)
        view.priority(row), view.expire_at_ms(row), view.message_id(row), view.id_bytes(row)
        view.origin_app(row), view.born_at_ms(row)
    view.order_keys(), view.priorities(), view.explicit_ids()
    if may_expire(bytes(view._data)):
        expired_rows(view, DUE_MS)
    for text in SELECTORS:
        Selector.parse(text).rows(view)
    tags = TagFilter.parse("vip || other")
    assert tags is not None
    tags.rows(view)
    record_batch(view).validate(full=True)
    rows, unreadable = SPARK._made(view)
    rows.validate(full=True)
    assert not unreadable, unreadable.names()
    if searchable(view):
        places = PlaceColumns()
        places.add(view, 3, view.base_sequence)
        places.rows()


@pytest.mark.parametrize("column", columns())
def test_a_column_of_any_shape_is_refused_or_read_by_every_reader(column: int) -> None:
    passed = refused = 0
    for pieces, attributes in itertools.product(variants(column), (0, int(Attribute.EXPIRES))):
        batch = a_batch_with(pieces, attributes)
        try:
            check_incoming(batch)
        except TernError as error:
            refused += 1
            assert error.code in ("protocol_error", "too_large", "corrupt"), error
            continue
        passed += 1
        read_every_way(stored(batch))

    assert refused > 100
    assert passed or column == Column.TRANSACTION


@pytest.mark.parametrize("born_ms", [-1, 2**62, DUE_MAX_MS + 1])
def test_a_batch_made_at_no_date_is_refused(born_ms: int) -> None:
    with pytest.raises(ProtocolError, match="rows were made"):
        check_incoming(a_batch_with([], born_ms=born_ms))


def test_every_column_has_a_rule() -> None:
    assert set(COLUMN_RULES) == set(Column) - {Column.TRANSACTION}


def test_a_column_nobody_knows_may_have_another_type_in_the_next_batch() -> None:
    """Both are good alone, and a delay server merges what is due."""
    texts = [
        Section(UNKNOWN, part, Type.UTF8, right(part, Type.UTF8)) for part in SHAPES[Type.UTF8]
    ]
    numbers = [Section(UNKNOWN, ColumnPart.VALUES, Type.INT64, bytes(8 * ROWS))]
    pairs = [Section(UNKNOWN, part, Type.MAP, right(part, Type.MAP)) for part in SHAPES[Type.MAP]]
    views = [BatchView(stored(a_batch_with(pieces))) for pieces in (texts, numbers, pairs)]
    origin = Origin(topic="x", app="%delay", producer=ProducerId(1, 2))

    for order in itertools.permutations(views):
        sources = [ChosenRows(view, np.arange(ROWS)) for view in order]
        merged = merge(sources, origin=origin, first_sequence=0)
        check_incoming(merged)
        assert BatchView(merged).bodies() == [b"a", b"b", b"c"] * 3


def test_what_an_older_release_stored_is_described_and_not_judged() -> None:
    """A start, or a replica, that refused it would never end (finding C1)."""
    batch = a_batch_with([Section(Column.KEY, ColumnPart.DATA, Type.UTF8, b"abc")])

    with pytest.raises(ProtocolError, match="column 2"):
        check_incoming(batch)
    assert describe_stored(batch).row_count == ROWS


def test_buffers_that_lie_over_each_other_are_refused() -> None:
    """Else 4 MB on the wire are a gigabyte for whoever cuts or merges them."""
    offsets = np.arange(0, 4_000, 1_000, dtype="<i4").tobytes()
    parts = [(ColumnPart.OFFSETS, offsets), (ColumnPart.DATA, b"x" * 3_000)]
    pieces = [
        Section(c, part, Type.UTF8, data) for c in (Column.KEY, UNKNOWN) for part, data in parts
    ]
    batch = a_batch_with(pieces)
    check_incoming(batch)
    places = BatchView(bytes(batch)).parts()
    first = align8(FIXED_SIZE + len("order.paid") + len("shop"))
    for at in range(first, first + DIRECTORY_ENTRY_SIZE * len(places), DIRECTORY_ENTRY_SIZE):
        column, part, kind, encoding, _, size = DIRECTORY.unpack_from(batch, at)
        if column == UNKNOWN:  # The key's bytes once more, and its own ones cut off.
            other = places[Column.KEY, part][0]
            DIRECTORY.pack_into(batch, at, column, part, kind, encoding, other, size)
    batch = batch[: places[UNKNOWN, ColumnPart.OFFSETS][0]]
    struct.pack_into("<I", batch, 8, len(batch))
    struct.pack_into("<I", batch, 128, crc32c(memoryview(batch)[132:]))

    with pytest.raises(ProtocolError, match="over each other"):
        check_incoming(batch)


def test_a_chunk_table_belongs_to_compressed_bodies() -> None:
    table = Section(Column.BODY, ColumnPart.CHUNKS, Type.BINARY, struct.pack("<4I", 0, 0, 3, 3))

    with pytest.raises(ProtocolError, match="not compressed"):
        check_incoming(a_batch_with([table]))


def test_more_words_than_a_batch_can_have_rows_are_refused() -> None:
    words = {
        ColumnPart.VALUES: bytes(4 * ROWS),
        ColumnPart.DICTIONARY_OFFSETS: bytes(4 * 70_000),
        ColumnPart.DICTIONARY_DATA: b"",
    }
    pieces = [Section(Column.TAG, part, Type.DICTIONARY, data) for part, data in words.items()]

    with pytest.raises(ProtocolError, match="different tags"):
        check_incoming(a_batch_with(pieces))
    assert describe_stored(a_batch_with(pieces)).row_count == ROWS


@pytest.mark.parametrize("info", [b"\x97\xc4\x00\xa1\xff", b"\x91" * 993 + b"\x90"])
def test_a_transaction_that_cannot_be_read_is_the_clients_mistake(info: bytes) -> None:
    piece = Section(Column.TRANSACTION, ColumnPart.DATA, Type.BINARY, info)

    with pytest.raises(ProtocolError, match="transaction"):
        read_info(BatchView(stored(a_batch_with([piece], int(Attribute.HALF)))))


def properties(*values: tuple[int, bytes]) -> bytearray:
    """A batch of one row with these values."""
    kind, column = Type.MAP, Column.PROPERTIES
    ends = list(itertools.accumulate((len(text) for _, text in values), initial=0))
    pieces = [
        Section(Column.BODY, ColumnPart.OFFSETS, Type.BINARY, struct.pack("<2i", 0, 1)),
        Section(Column.BODY, ColumnPart.DATA, Type.BINARY, b"b"),
        Section(column, ColumnPart.OFFSETS, kind, struct.pack("<2i", 0, len(values))),
        Section(
            column,
            ColumnPart.NAME_OFFSETS,
            kind,
            struct.pack(f"<{len(values) + 1}i", *range(len(values) + 1)),
        ),
        Section(column, ColumnPart.NAME_DATA, kind, b"n" * len(values)),
        Section(column, ColumnPart.VALUE_OFFSETS, kind, struct.pack(f"<{len(ends)}i", *ends)),
        Section(column, ColumnPart.VALUE_DATA, kind, b"".join(text for _, text in values)),
        Section(column, ColumnPart.VALUE_TYPES, kind, bytes(kind for kind, _ in values)),
    ]
    return assemble(pieces, 1, 1, ORIGIN, 0, DUE_MS, 0)


def passes(*values: tuple[int, bytes]) -> bool:
    try:
        check_incoming(properties(*values))
    except ProtocolError:
        return False
    return True


def test_every_float_and_every_bytes_that_we_write_pass() -> None:
    """S1: whatever stands before and behind them."""
    random = Random(7)
    numbers = [struct.unpack("<d", random.randbytes(8))[0] for _ in range(300)]
    numbers += [0.0, -0.0, 1e22, 1e-7, 5e-324, 1.7976931348623157e308, *map(float, range(10))]
    numbers += [math.inf, -math.inf, math.nan]
    random.shuffle(numbers)
    floats = [value_to_text(each) for each in numbers]
    data = [value_to_text(random.randbytes(size)) for size in (0, 1, 2, 3, 4, 50)]
    texts = [value_to_text(each) for each in ("inf", "na", "e.+-", "", "é=", 5, True)]

    assert passes(*floats)
    assert passes(*data)
    for _ in range(20):
        mixed = random.choices([*floats, *data, *texts], k=40)
        assert passes(*mixed), mixed


def test_no_float_and_no_bytes_pass_that_a_reader_could_not_read() -> None:
    """S1: all short texts of the letters that floats and base 64 are made of."""
    around = value_to_text(1.5), value_to_text("nan"), value_to_text(b"ab")
    for kind, letters in ((FLOAT, b"07.eE+-infa "), (BYTES, b"Az+/=-\n")):
        for size in range(4):
            for chosen in itertools.product(letters, repeat=size):
                text = bytes(chosen)
                if passes(around[0], (kind, text), around[1], (kind, text), around[2]):
                    value_from_text(kind, text)
    for text in (b"1.2.3", b"1e5.2", b"1e1e1", b"1e", b"-", b"1einf", b"-nan", b"infinity", b"1_0"):
        assert not passes(around[0], (FLOAT, text), around[0]), text
    for text in (b"A", b"AB", b"A=", b"====", b"A===", b"AB=C", b"AAA=AAAA", b"AA=="[:3]):
        assert not passes(around[2], (BYTES, text), around[2]), text


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_codes_of_tags_that_are_no_numbers_of_four_bytes_are_refused(rows: int) -> None:
    """Found by fuzzing: a dictionary of words, and codes that say they are single bytes."""
    pieces = [
        Section(
            Column.BODY, ColumnPart.OFFSETS, Type.BINARY, np.arange(rows + 1, dtype="<i4").tobytes()
        ),
        Section(Column.BODY, ColumnPart.DATA, Type.BINARY, b"b" * rows),
        Section(Column.TAG, ColumnPart.VALUES, Type.UINT8, bytes(rows)),
        Section(
            Column.TAG, ColumnPart.DICTIONARY_OFFSETS, Type.DICTIONARY, struct.pack("<2i", 0, 3)
        ),
        Section(Column.TAG, ColumnPart.DICTIONARY_DATA, Type.DICTIONARY, b"vip"),
    ]
    with pytest.raises(ProtocolError, match="dictionary"):
        check_incoming(assemble(pieces, rows, rows, ORIGIN, 0, DUE_MS, 0))
