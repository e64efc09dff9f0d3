"""The inner source of the archive job: each task writes its range and yields what it wrote.

Only file names and counts cross into the JVM, so an archive runs at the speed of pyarrow. The rows
of this source are manifests, one JSON text for each file, and one for what was removed while it was
read. Not for users: the job gives it a plan.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from ternmq.pipeline.archive.log import DELIVERIES, ArchivePlace, TaskResult
from ternmq.pipeline.archive.store import ArchiveStore
from ternmq.pipeline.archive.writer import write_rows
from ternmq.pipeline.cluster import cluster
from ternmq.pipeline.positions import TopicPlace
from ternmq.pipeline.source.columns import full_schema
from ternmq.pipeline.source.delivery_rows import DeliveryRowMaker
from ternmq.pipeline.source.rows import RowMaker


@dataclass(frozen=True)
class ArchiveTask(InputPartition):
    """A range to write."""

    kind: str
    topic: str
    broker_group: str
    first: int
    end: int
    wanted: dict[str, int] | None = None
    """Of delivery records: see `DeliveryRowMaker`."""


class ArchiveSource(DataSource):
    """The format "tern_archive": options url, target, plan, keys."""

    @classmethod
    def name(cls) -> str:
        return "tern_archive"

    def schema(self) -> StructType:
        return StructType([StructField("manifest", StringType(), False)])

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self.options
        return ArchiveReader(
            options["url"], options["target"], options["plan"], options.get("keys", "")
        )


class ArchiveReader(DataSourceReader):
    """Writes ranges, tells files."""

    def __init__(self, url: str, target: str, plan: str, keys: str = "") -> None:
        self._url = url
        self._keys = keys
        self._target = target
        self._plan = plan

    def partitions(self) -> list[InputPartition]:
        return [ArchiveTask(**task) for task in json.loads(self._plan)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        if not isinstance(partition, ArchiveTask):  # Spark makes one of an empty plan.
            return
        task = partition
        place = ArchivePlace(task.kind, task.topic, task.broker_group)
        gone: list[int] = []
        schema = to_arrow_schema(full_schema(task.kind, properties=True), timezone="UTC")
        messages = RowMaker(schema, topic=task.topic, broker_group=task.broker_group)
        where = TopicPlace(task.topic, task.broker_group)
        if task.kind == DELIVERIES:
            pages = cluster(self._url).read_deliveries(where, task.first, task.end, gone.append)
            deliveries = DeliveryRowMaker(
                schema, broker_group=task.broker_group, wanted=task.wanted
            )
            rows = deliveries.record_batches(pages)
        else:
            pieces = cluster(self._url, self._keys).read(where, task.first, task.end, [])
            rows = messages.record_batches(pieces)
        expected = task.end - task.first if task.kind != DELIVERIES else 100_000
        for file in write_rows(ArchiveStore(self._target), place, rows, expected):
            yield (msgspec.json.encode(TaskResult(file=file)).decode(),)
        if gone or messages.unreadable:
            result = TaskResult(
                broker_group=task.broker_group, lost=sum(gone), unreadable=messages.unreadable
            )
            yield (msgspec.json.encode(result).decode(),)
