"""Stored batches that cannot be read whole make rows all the same, marked and counted (P1, P3)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from ternmq.batch.encoder import Origin, Outgoing, Section, assemble
from ternmq.batch.envelope import Envelope
from ternmq.batch.layout import Column, ColumnPart, Encoding, Type
from ternmq.batch.view import BatchView
from ternmq.core.ids import ProducerId
from ternmq.pipeline.source.columns import full_schema
from ternmq.pipeline.source.rows import RowMaker
from ternmq.pipeline.source.unreadable_rows import MARK
from tests.integration.poisoned_batches import POISON, poisoned
from tests.unit.batch.builders import a_batch

SCHEMA = to_arrow_schema(full_schema("messages", properties=True), timezone="UTC")
OFFSETS, DATA, VALUES = ColumnPart.OFFSETS, ColumnPart.DATA, ColumnPart.VALUES
UNSEEN = {"trace without offsets", "expire as bytes", "priority as numbers"}
"""Columns that the source does not have."""


def i4(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


def batch(*pieces: Section, body: Section | None = None) -> bytes:
    bodies = [
        Section(Column.BODY, OFFSETS, Type.BINARY, i4(0, 1, 2)),
        body or Section(Column.BODY, DATA, Type.BINARY, b"ab"),
    ]
    origin = Origin(topic="orders", app="old", producer=ProducerId(1, 1))
    return bytes(assemble([*bodies, *pieces], 2, 2, origin, 0, 1_000, 0))


def rows(*data: bytes | bytearray) -> tuple[list[dict[str, Any]], int]:
    maker = RowMaker(SCHEMA, topic="orders", broker_group="main")

    def pieces() -> Iterator[list[Envelope]]:
        for each in data:
            view = BatchView(each)
            yield [Envelope(0, 0, view, [(0, view.count)], [], True)]

    [made] = maker.record_batches(pieces())
    made.validate(full=True)
    return list(made.to_pylist(maps_as_pydicts="strict")), maker.unreadable


@pytest.mark.parametrize("what", sorted(POISON))
def test_poison_makes_marked_rows_and_its_neighbours_are_whole(what: str) -> None:
    good = a_batch([Outgoing(body=b"good", key="k", born_at_ms=1)])

    found, count = rows(good, poisoned(what, "orders"), good)

    assert [row["body"] for row in found] == [b"good", b"a", b"b", b"good"]
    assert [MARK in row["properties"] for row in found[::3]] == [False, False]
    marked = 0 if what in UNSEEN else 2
    assert sum(MARK in row["properties"] for row in found) == count == marked
    assert found[1]["id"] != found[2]["id"]


def test_bodies_that_do_not_decompress_are_empty_and_the_keys_are_there() -> None:
    packed = Section(Column.BODY, DATA, Type.BINARY, b"not zstd", Encoding.ZSTD)
    keys = [
        Section(Column.KEY, OFFSETS, Type.UTF8, i4(0, 1, 2)),
        Section(Column.KEY, DATA, Type.UTF8, b"xy"),
    ]

    found, count = rows(batch(*keys, body=packed))

    assert [(row["body"], row["key"]) for row in found] == [(b"", "x"), (b"", "y")]
    assert [row["properties"][MARK] for row in found] == ["body", "body"]
    assert count == 2


def test_one_key_that_is_no_text_costs_its_row_alone() -> None:
    keys = [
        Section(Column.KEY, OFFSETS, Type.UTF8, i4(0, 1, 2)),
        Section(Column.KEY, DATA, Type.UTF8, b"x\xff"),
    ]

    found, count = rows(batch(*keys))

    assert [row["key"] for row in found] == ["x", None]
    assert [row["properties"].get(MARK) for row in found] == [None, "key"]
    assert count == 1


@pytest.mark.parametrize(
    "offsets", [i4(0, 1, 2**30), i4(0, -5, 1), i4(2, 1, 0), i4(0, 1), b"\1\2\3", b""]
)
@pytest.mark.parametrize("column", [Column.KEY, Column.ORDER_KEY, Column.ORIGIN_APP])
def test_offsets_that_point_elsewhere_are_never_followed(column: Column, offsets: bytes) -> None:
    """They would read this process's memory."""
    found, count = rows(
        batch(
            Section(column, OFFSETS, Type.UTF8, offsets),
            Section(column, DATA, Type.UTF8, b"xy"),
        )
    )

    assert count == 2
    assert [row["body"] for row in found] == [b"a", b"b"]


@pytest.mark.parametrize("codes", [i4(0, 7), i4(-1, 0), i4(0)])
def test_tags_outside_their_dictionary_are_none(codes: bytes) -> None:
    found, count = rows(
        batch(
            Section(Column.TAG, VALUES, Type.DICTIONARY, codes),
            Section(Column.TAG, ColumnPart.DICTIONARY_OFFSETS, Type.DICTIONARY, i4(0, 1)),
            Section(Column.TAG, ColumnPart.DICTIONARY_DATA, Type.DICTIONARY, b"t"),
        )
    )

    assert (count, [row["tag"] for row in found]) == (2, [None, None])


def test_the_mark_needs_no_properties_to_be_counted() -> None:
    maker = RowMaker(pa.schema([SCHEMA.field("key")]), topic="orders", broker_group="main")
    view = BatchView(poisoned("key without offsets", "orders"))

    [made] = maker.record_batches(iter([[Envelope(0, 0, view, [(1, 2)], [], True)]]))

    assert (made.to_pylist(), maker.unreadable) == ([{"key": None}], 1)
