"""The data pipeline on Spark: the queue as a source and a sink, and the jobs made of them.

The only package that imports pyspark or pyarrow. `register(spark)` teaches a session the format
"tern"; an installed package is found by Spark itself through the module `pyspark_tern`. The names
below are for applications, and loaded when they are asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ternmq.pipeline.source.lag import LagListener
    from ternmq.pipeline.spark.session import spark_session

__all__ = ["LagListener", "register", "spark_session"]

_LAZY = {
    "LagListener": "ternmq.pipeline.source.lag",
    "spark_session": "ternmq.pipeline.spark.session",
}


def register(spark: "SparkSession") -> None:
    """Make `format("tern")` known to this session; refuses one whose workers lack ternmq."""
    from ternmq.pipeline.source.source import TernSource
    from ternmq.pipeline.spark.worker_python import check_workers

    check_workers(spark)

    spark.dataSource.register(TernSource)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
