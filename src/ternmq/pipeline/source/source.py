"""`spark.read|readStream|write|writeStream.format("tern")`: topics as data frames, and back.

A `DataSource` is made anew in every process that Spark starts for it, from the options alone;
so nothing here keeps state. Schema: all columns, or the ones the user named (`columns`).
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ternmq.core.errors import BadRequest
from ternmq.pipeline.options import columns_of, sink_options, source_options
from ternmq.pipeline.sink.sink import BatchWriter, StreamWriter
from ternmq.pipeline.source.batch_reader import BatchReader
from ternmq.pipeline.source.columns import full_schema
from ternmq.pipeline.source.stream_reader import StreamReader


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

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise BadRequest("a topic cannot be overwritten: use mode('append')")
        writer = BatchWriter(sink_options(self.options, streaming=False), schema)
        writer.check_reachable()
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        if overwrite:
            raise BadRequest("a topic cannot be overwritten: use outputMode('append')")
        return StreamWriter(sink_options(self.options, streaming=True), schema)
