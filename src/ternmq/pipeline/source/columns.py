"""The columns of the source: their names, their Spark types and what the broker must send for them.

A schema that the user gives is a projection: its columns must be among these, with these types, and
only what they need travels. `id`, `sequence` and the times cost no bytes on the wire.
"""

from dataclasses import dataclass
from difflib import get_close_matches

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ternmq.batch.layout import Column
from ternmq.core.errors import BadRequest


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """One column that a query may ask for."""

    kind: DataType
    nullable: bool
    needs: tuple[Column, ...] = ()
    """What the batch must bring for it; sizes come with every batch."""


MESSAGES: dict[str, SourceColumn] = {
    "id": SourceColumn(StringType(), False, (Column.EXPLICIT_ID,)),
    "topic": SourceColumn(StringType(), False),
    "broker_group": SourceColumn(StringType(), False),
    "sequence": SourceColumn(LongType(), False),
    "body": SourceColumn(BinaryType(), False, (Column.BODY, Column.SEAL, Column.EXPLICIT_ID)),
    "key": SourceColumn(StringType(), True, (Column.KEY,)),
    "tag": SourceColumn(StringType(), True, (Column.TAG,)),
    "order_key": SourceColumn(StringType(), True, (Column.ORDER_KEY,)),
    "properties": SourceColumn(
        MapType(StringType(), StringType(), False), False, (Column.PROPERTIES,)
    ),
    "born_at": SourceColumn(TimestampType(), False, (Column.BORN,)),
    "stored_at": SourceColumn(TimestampType(), False),
    "app": SourceColumn(StringType(), False, (Column.ORIGIN_APP,)),
    "client_address": SourceColumn(StringType(), False, (Column.ORIGIN_ADDRESS,)),
    "size": SourceColumn(IntegerType(), False),
}

DELIVERIES: dict[str, SourceColumn] = {
    "topic": SourceColumn(StringType(), False),
    "broker_group": SourceColumn(StringType(), False),
    "group": SourceColumn(StringType(), False),
    "lane": SourceColumn(StringType(), False),
    "sequence": SourceColumn(LongType(), False),
    "event": SourceColumn(StringType(), False),
    "at": SourceColumn(TimestampType(), False),
    "attempt": SourceColumn(IntegerType(), True),
    "consumer": SourceColumn(StringType(), True),
    "lease": SourceColumn(LongType(), True),
    "text": SourceColumn(StringType(), True),
    "position": SourceColumn(LongType(), False),
}


def full_schema(stream: str, *, properties: bool) -> StructType:
    """Every column; the properties only where asked for, since maps are slow in Spark."""
    known = DELIVERIES if stream == "deliveries" else MESSAGES
    return StructType(
        [
            StructField(name, column.kind, column.nullable)
            for name, column in known.items()
            if properties or name != "properties"
        ]
    )


def check_projection(stream: str, wanted: StructType) -> None:
    """Refuse a schema that is not a selection of our columns, naming the nearest one."""
    known = DELIVERIES if stream == "deliveries" else MESSAGES
    twice = [name for name in wanted.names if wanted.names.count(name) > 1]
    if twice:
        raise BadRequest(f"the schema names column {twice[0]!r} twice")
    for field in wanted.fields:
        column = known.get(field.name)
        if column is None:
            near = get_close_matches(field.name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else "there are: " + ", ".join(known)
            raise BadRequest(f"the tern source has no column {field.name!r}; {hint}")
        if field.dataType.simpleString() != column.kind.simpleString():
            raise BadRequest(
                f"column {field.name!r} is {column.kind.simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )


def needed(names: list[str]) -> list[int]:
    """The batch columns that the broker must send for these; at least one, since none means all."""
    columns = sorted({int(need) for name in names for need in MESSAGES[name].needs})
    return columns or [int(Column.EXPLICIT_ID)]
