"""`spark.read`: bounds looked up once, split into ranges, each task reads one as Arrow batches.

`partitions` runs in a planner process, `read` in the workers; they share the options and the
pickled partitions, nothing else.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ternmq.pipeline.cluster import cluster
from ternmq.pipeline.options import SourceOptions
from ternmq.pipeline.positions import TopicPlace
from ternmq.pipeline.source.bounds import ending, places_of, starting
from ternmq.pipeline.source.columns import check_projection, needed
from ternmq.pipeline.source.data_loss import DataLoss
from ternmq.pipeline.source.delivery_rows import DeliveryRowMaker
from ternmq.pipeline.source.ranges import Range, split
from ternmq.pipeline.source.rows import RowMaker


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """One task: a range of one place."""

    topic: str
    broker_group: str
    first: int
    end: int


class ArrowRangeReader:
    """What a task does; shared by batch and stream."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_projection(options.stream, schema)
        self._options = options
        self._schema = schema

    def tasks(self, ranges: list[Range]) -> list[RangePartition]:
        options = self._options
        if options.stream == "deliveries":  # Counted in bytes: a record must stay in one piece.
            cut = sorted(each for each in ranges if each.rows > 0)
        else:
            cut = split(
                ranges, rows_max=options.partition_rows_max, at_least=options.partitions_min
            )
        return [RangePartition(*each.place, each.first, each.end) for each in cut]

    def rows(self, task: RangePartition) -> Iterator[Any]:
        """The rows of a range as Arrow batches."""
        schema = to_arrow_schema(self._schema, timezone="UTC")
        place = TopicPlace(task.topic, task.broker_group)
        if self._options.stream == "deliveries":
            pages = cluster(self._options.url).read_deliveries(
                place, task.first, task.end, self._gone(task)
            )
            found = DeliveryRowMaker(schema, broker_group=place.broker_group)
            yield from found.record_batches(pages)
            return
        pieces = cluster(self._options.url, self._options.keys).read(
            place,
            task.first,
            task.end,
            needed(self._schema.names),
            replica=self._options.from_replica,
        )
        maker = RowMaker(schema, topic=place.topic, broker_group=place.broker_group)
        count = 0
        for batch in maker.record_batches(pieces):
            count += batch.num_rows
            yield batch
        if count != task.end - task.first and self._options.fail_on_data_loss:
            raise DataLoss(
                f"{task.end - task.first - count} of the messages {task.first} to {task.end} of "
                f"{task.topic!r} are gone; set failOnDataLoss to false to read what is left"
            )

    def _gone(self, task: RangePartition) -> Callable[[int], None]:
        """Delivery records are counted in bytes: they say how many messages they speak of."""

        def gone(size: int) -> None:
            if self._options.fail_on_data_loss:
                raise DataLoss(
                    f"{size} bytes of the delivery records {task.first} to {task.end} of "
                    f"{task.broker_group!r} are gone; set failOnDataLoss to false to read what is "
                    "left"
                )

        return gone


class BatchReader(DataSourceReader):
    """`spark.read.format("tern")`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._ranges = ArrowRangeReader(options, schema)

    def partitions(self) -> list[InputPartition]:
        options = self._options
        found = cluster(options.url)
        places = places_of(options, found)
        first = starting(options, found, places)
        end = ending(options, found, places)
        ranges = [Range(place, first[place], end[place]) for place in places]
        # Spark makes one empty partition of an empty list; `read` knows it by its type.
        return list(self._ranges.tasks(ranges))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, RangePartition):
            yield from self._ranges.rows(partition)
