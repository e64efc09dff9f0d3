"""`write|writeStream.format("tern")`: rows of a data frame become messages, exactly once.

A write has a name: a stream's query and micro-batch, or a job's id. Tasks stage their rows under it
(`stage`), the driver publishes those that count (`commit`); a name is published once. Spark
makes a writer anew in several processes, and tells only the tasks which query they belong to: so
all that the driver must know comes with the tasks' messages.
"""

import secrets
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StringType, StructType, TimestampType

from ternmq.core.errors import BadRequest
from ternmq.pipeline.cluster import ClusterView, cluster
from ternmq.pipeline.options import SinkOptions
from ternmq.pipeline.sink import commit
from ternmq.pipeline.sink import rows as sink_rows
from ternmq.pipeline.sink.stage import Stage, TaskDone

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


def check_schema(schema: StructType, topic: str) -> None:
    """Refuse a data frame that cannot be sent before anything is run."""
    sink_rows.check_columns(schema.names, topic=topic)
    for field in schema.fields:
        if field.name in sink_rows.NOT_SENT or (topic and field.name == "topic"):
            continue
        kind, shown = field.dataType, field.dataType.simpleString()
        if field.name == "body":
            fine, wanted = isinstance(kind, BinaryType | StringType), "binary or string"
        elif field.name == "properties":
            fine, wanted = shown == "map<string,string>", "map<string,string>"
        elif field.name in ("born_at", "deliver_at"):
            fine, wanted = isinstance(kind, TimestampType), "timestamp"
        else:
            fine, wanted = isinstance(kind, StringType), "string"
        if not fine:
            raise BadRequest(f"the column {field.name!r} is {shown}; the tern sink takes {wanted}")


class TaskWriter:
    """What a task does; shared by batch and stream."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, options.topic)
        self._options = options
        self._ordered = "order_key" in schema.names

    @property
    def cluster(self) -> ClusterView:
        return cluster(self._options.url, self._options.keys)

    def write(self, rows: Iterator[pa.RecordBatch], name: str, partition: int) -> TaskDone:
        groups = sorted(self.cluster.broker_groups())
        taking = sorted(self.cluster.taking_groups())
        # Messages of an order key keep their order only on one group.
        group = taking[0 if self._ordered else partition % len(taking)]
        stage = Stage(self.cluster, TaskDone(name, groups, partition, group))
        try:
            for batch in rows:
                now_ms = time.time_ns() // 1_000_000
                sink_rows.check_rows(batch)
                for later, rest in sink_rows.split_due(batch, now_ms):
                    server = self._delay_server(partition) if later else ""
                    for topic, part in sink_rows.split_topics(rest, self._options.topic):
                        for columns in sink_rows.batches(part, now_ms):
                            stage.add(topic, columns, server)
            return stage.finish()
        except BaseException:
            stage.give_up()
            raise

    def _delay_server(self, partition: int) -> str:
        """The delay server that keeps the delayed rows of this task."""
        servers = sorted(self.cluster.delay_servers())
        return servers[partition % len(servers)]


class BatchWriter(DataSourceArrowWriter):
    """`frame.write.format("tern").mode("append")`."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._tasks = TaskWriter(options, schema)
        self._name = f"job:{options.job_id or secrets.token_hex(16)}"

    def check_reachable(self) -> None:
        """One line now instead of one from every try of every task."""
        self._tasks.cluster.broker_groups()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        return self._tasks.write(iterator, self._name, _context().partitionId())

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        commit.commit(self._tasks.cluster, commit.tasks_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        commit.abort(self._tasks.cluster, commit.tasks_of(messages), self._name)


class StreamWriter(DataSourceStreamArrowWriter):
    """`frame.writeStream.format("tern")`."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._tasks = TaskWriter(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        context = _context()
        query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
        if not query or not batch:
            raise BadRequest("Spark does not say which query and micro-batch this is")
        return self._tasks.write(iterator, f"{query}:{batch}", context.partitionId())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        commit.commit(self._tasks.cluster, commit.tasks_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        commit.abort(self._tasks.cluster, commit.tasks_of(messages))


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "called outside of a task"
    return context
