"""`spark.read|readStream.format("tern")`: topics as data frames, by position or by time.

A `DataSource` is made anew in every process that Spark starts for it, from the options alone;
so nothing here keeps state. Schema: all columns, or the ones the user named (`columns`).
"""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from ternmq.pipeline.batch_reader import BatchReader
from ternmq.pipeline.columns import full_schema
from ternmq.pipeline.options import columns_of, source_options
from ternmq.pipeline.stream_reader import StreamReader


class TernSource(DataSource):
    """The format "tern"."""

    @classmethod
    def name(cls) -> str:
        return "tern"

    def schema(self) -> StructType:
        stream, properties = columns_of(self.options)
        return full_schema(stream, properties=properties)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(source_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(source_options(self.options, streaming=True), schema)
