"""Archived rows as a data frame, wherever the archive lies (P4, P5).

Local files are read by Spark itself. What lies in S3 and the like is read by our tasks through
`pyarrow.fs`, one task for each file: so no Hadoop jars are needed, and the credentials are those
that the archive job used. Files, and parts of files, without a wanted sequence are not read. Both
ways give the same columns: those of the source, and the partition `date`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from ternmq.pipeline.archive.log import ArchivedFile
from ternmq.pipeline.archive.store import ArchiveStore
from ternmq.pipeline.source.columns import full_schema

ROWS_AT_ONCE = 16_384
END = 2**62


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
        return spark.read.option("basePath", store.absolute(kind)).parquet(*paths)
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
            for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=names):
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
