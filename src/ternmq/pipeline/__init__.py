"""The data pipeline on Spark: the queue as a source and a sink, and the jobs made of them.

The only package that imports pyspark or pyarrow. `register(spark)` teaches a session the format
"tern"; an installed package is found by Spark itself through the module `pyspark_tern`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Make `format("tern")` known to this session."""
    from ternmq.pipeline.source.source import TernSource

    spark.dataSource.register(TernSource)
