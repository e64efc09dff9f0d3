"""Archived rows as a data frame, wherever the archive lies (P4, P5).

Local files are read by Spark itself. What lies in S3 and the like is read by our tasks through
`pyarrow.fs`, one task for each file: so no Hadoop jars are needed, and the credentials are those
that the archive job used. Files, and parts of files, without a wanted sequence are not read. Both
ways give the same columns: those of the source, and the partition `date`; addresses that release
0.1 wrote as bytes are text (`packed_addresses.py`).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from ternmq.pipeline.archive.log import ArchivedFile
from ternmq.pipeline.archive.packed_addresses import COLUMN, mended
from ternmq.pipeline.archive.store import ArchiveStore
from ternmq.pipeline.source.columns import full_schema
from ternmq.rpc.address import ADDRESS_SIZE

ROWS_AT_ONCE = 16_384
END = 2**62
_MAPPED = "00000000000000000000FFFF"
"""How an IPv4 address begins, as hexadecimal digits."""
_IPV4_AT = (25, 27, 29, 31)
_IPV6_AT = (1, 5, 9, 13, 17, 21, 25, 29)
_PORT_AT = 33


@dataclass(frozen=True)
class FileTask(InputPartition):
    """A file to read, and what its folder says of it."""

    path: str
    topic: str
    date: str


def archived_rows(
    spark: SparkSession,
    store: ArchiveStore,
    files: Sequence[ArchivedFile],
    *,
    first: int = 0,
    end: int = END,
) -> DataFrame:
    """The rows of files of one kind; those with a sequence from `first` to `end`, and maybe more.

    `files` must not be empty.
    """
    kind = files[0].kind
    wanted = [file for file in files if file.first < end and file.end > first] or [files[0]]
    if store.is_local:
        paths = [store.present(file) for file in wanted]
        rows = spark.read.option("basePath", store.absolute(kind)).parquet(*paths)
        return rows.withColumn(COLUMN, _mended_column()) if COLUMN in rows.columns else rows
    plan = [
        {"path": store.present(file), "topic": file.topic, "date": file.date} for file in wanted
    ]
    spark.dataSource.register(FilesSource)
    reader = spark.read.format(FilesSource.name()).options(
        target=store.target, kind=kind, plan=json.dumps(plan), first=str(first), end=str(end)
    )
    return reader.load()


class FilesSource(DataSource):
    """The format "tern_files": options target, kind, plan, first, end. Not for users."""

    @classmethod
    def name(cls) -> str:
        return "tern_files"

    def schema(self) -> StructType:
        columns = full_schema(self.options["kind"], properties=True)
        return StructType([*columns.fields, StructField("date", StringType(), False)])

    def reader(self, schema: StructType) -> DataSourceReader:
        return FilesReader(dict(self.options), schema)


class FilesReader(DataSourceReader):
    """Reads files, each in a task."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._target = options["target"]
        self._plan = options["plan"]
        self._range = int(options["first"]), int(options["end"])
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [FileTask(**task) for task in json.loads(self._plan)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FileTask)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        constants = {"topic": partition.topic, "date": partition.date}
        store = ArchiveStore(self._target)
        with pq.ParquetFile(partition.path, filesystem=store.filesystem) as file:
            groups = _groups(file, *self._range)
            names = [name for name in schema.names if name not in constants]
            for found in file.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=names):
                batch = mended(found)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows)
                        if field.name in constants
                        else batch.column(field.name).cast(field.type)
                        for field in schema
                    ],
                    schema=schema,
                )


def _groups(file: pq.ParquetFile, first: int, end: int) -> list[int]:
    """The row groups that may hold a sequence between the two."""
    leaf = [file.schema.column(at).path for at in range(len(file.schema.names))].index("sequence")
    found: list[int] = []
    for number in range(file.num_row_groups):
        known = file.metadata.row_group(number).column(leaf).statistics
        if known is None or not known.has_min_max or (known.min < end and known.max >= first):
            found.append(number)
    return found


def _mended_column() -> SparkColumn:
    """What `mended` does, in Spark itself; IPv6 without the shortening of zeros."""
    digits = f.hex(f.col(COLUMN).cast("binary"))
    packed = f.col(COLUMN).rlike("[^0-9a-f.:\\[\\]]") & (
        f.octet_length(COLUMN) == f.lit(ADDRESS_SIZE)
    )
    parts = [_number(digits, at, 2) for at in _IPV4_AT]
    ipv4 = f.concat_ws(":", f.concat_ws(".", *parts), _number(digits, _PORT_AT, 4))
    groups = [f.lower(f.conv(f.substring(digits, at, 4), 16, 16)) for at in _IPV6_AT]
    host = f.concat(f.lit("["), f.concat_ws(":", *groups), f.lit("]"))
    ipv6 = f.concat_ws(":", host, _number(digits, _PORT_AT, 4))
    text = f.when(digits.startswith(_MAPPED), ipv4).otherwise(ipv6)
    return f.when(packed, text).otherwise(f.col(COLUMN)).alias(COLUMN)


def _number(digits: SparkColumn, at: int, count: int) -> SparkColumn:
    return f.conv(f.substring(digits, at, count), 16, 10)
