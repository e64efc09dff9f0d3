"""The sink with a driver that stops at a step of its commit; alone, a driver that can be killed.

python -m tests.integration.pipeline.sink_driver URL CHECKPOINT STEP MARK [DELIVER_AT]: copies topic
`from` to topic `to` and writes the file MARK when the commit of the first micro-batch has come to
the step: `before` or `after` the rows are published. Then it waits to be killed. DELIVER_AT is SQL.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from ternmq.pipeline.options import SinkOptions, sink_options
from ternmq.pipeline.sink.sink import StreamWriter
from ternmq.pipeline.sink.stage import TaskDone
from ternmq.pipeline.source.source import TernSource
from ternmq.pipeline.spark.session import spark_session
from tests.integration.processes import clean_environment
from tests.waiting import wait_until

STEP, MARK = "tests.step", "tests.mark"


class StoppingWriter(StreamWriter):
    """Stops in its first commit of rows, once: `fail` raises, else it waits for ever."""

    def __init__(self, options: SinkOptions, schema: StructType, step: str, mark: Path) -> None:
        super().__init__(options, schema)
        self._step, self._mark = step, mark

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        rows = sum(message.rows for message in messages if isinstance(message, TaskDone))
        if rows and "before" in self._step:
            self._stop()
        super().commit(messages, batchId)
        if rows and "after" in self._step:
            self._stop()

    def _stop(self) -> None:
        if self._mark.exists():
            return
        self._mark.write_text("here")
        if "fail" in self._step:
            raise RuntimeError("the driver has a bad day")
        threading.Event().wait(600)


class StoppingSource(TernSource):
    """The format "stopping": tern, with two more options."""

    @classmethod
    def name(cls) -> str:
        return "stopping"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        given = dict(self.options)
        step, mark = given.pop(STEP), Path(given.pop(MARK))
        return StoppingWriter(sink_options(given, streaming=True), schema, step, mark)


def copy(
    spark: SparkSession,
    url: str,
    checkpoint: Path,
    *columns: str,
    **options: str,
) -> StreamingQuery:
    """Everything of topic `from` to topic `to`, with keys (and more columns), by 1,000."""
    wanted = {"topic": "to", "format": "tern"} | options
    source = spark.readStream.format("tern").options(
        url=url,
        subscribe="from",
        startingOffsets="earliest",
        maxOffsetsPerTrigger="1000",
        minPartitions="2",
    )
    return (
        source.load()
        .selectExpr("body", "key", *columns)
        .writeStream.format(wanted.pop("format"))
        .options(url=url, checkpointLocation=str(checkpoint), **wanted)
        .trigger(availableNow=True)
        .start()
    )


def kill_at_commit(url: str, checkpoint: Path, step: str, mark: Path, *columns: str) -> None:
    """Run such a driver, and kill -9 it with its JVM and workers when it has come to the step."""
    driver = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.integration.pipeline.sink_driver",
            url,
            str(checkpoint),
            step,
            str(mark),
            *columns,
        ],
        env=clean_environment(),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(mark.exists, "the driver is at its commit", seconds=120)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait(10)


def main(url: str, checkpoint: Path, step: str, mark: str, *columns: str) -> None:
    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    spark = spark_session("sinking", master="local[2]", conf=quick)
    spark.dataSource.register(StoppingSource)
    options = {"format": "stopping", STEP: step, MARK: mark}
    copy(spark, url, checkpoint, *columns, **options).awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
