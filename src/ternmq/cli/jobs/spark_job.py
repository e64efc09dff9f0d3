"""What every command that runs on Spark has: its session, its flags, and an orderly Ctrl-C."""

import logging
import os
import signal
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.output import note
from ternmq.core.errors import BadRequest, Unavailable
from ternmq.core.units import parse_rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

Master = Annotated[
    str | None, typer.Option("--master", help="Spark master; without it, this machine.")
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", help="Spark setting k=v; may be repeated.")
]


def job_rate(text: str) -> int:
    """What `--rate` says; 0 means none, but only in that word: nobody means all at once by 0."""
    rate = parse_rate(text)
    if rate == 0 and text.strip().lower() != "none":
        raise BadRequest(f"--rate {text} would send nothing; leave --rate out for no limit")
    return rate


@contextmanager
def spark_job(name: str, master: str | None, conf: list[str] | None) -> "Iterator[SparkSession]":
    """A session for one command, stopped after it."""
    from ternmq.cli.terminal.logs import configure

    configure(level="warning")
    settings: dict[str, str] = {}
    for text in conf or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise BadRequest(f"--conf is k=v, got {text!r}")
        settings[key.strip()] = value
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    from ternmq.pipeline.spark.session import first_line, spark_session

    for query in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        # It logs a mistake in --where with all its stack; the one line comes from us.
        PySparkLogger.getLogger(query).setLevel(logging.CRITICAL)
    left, spark = False, None
    before = signal.signal(signal.SIGINT, _leave)  # PySpark's calls Java in the midst of a call.
    try:
        spark = spark_session(name, master=master, conf=settings)
        yield spark
    except SystemExit:
        left = True
        note("stopped")
        raise
    except (PySparkException, Py4JJavaError) as error:
        raise Unavailable(f"the Spark job failed: {first_line(error)}") from error
    except (Py4JError, ConnectionError) as error:
        raise Unavailable(f"Spark's Java process ended: {first_line(error)}") from error
    except OSError as error:
        raise Unavailable(f"the job failed: {error}") from error
    finally:
        signal.signal(signal.SIGINT, before)
        if spark is not None and not left:
            _stop(spark)


def _stop(spark: "SparkSession") -> None:
    """Not after a Ctrl-C: the answer of a call that was cut off is still to come, and Java ends by
    itself when this process does."""
    with suppress(Exception):  # A JVM that is gone cannot be stopped.
        if "TERN_SPARK_LOG" not in os.environ:  # What is cut off now says so at length.
            spark.sparkContext.setLogLevel("OFF")
        spark.sparkContext.cancelAllJobs()
        spark.stop()


def _leave(number: int, _: object) -> None:
    """Not by KeyboardInterrupt, which py4j logs with its stack."""
    raise SystemExit(128 + number)


@contextmanager
def interrupted() -> "Iterator[Callable[[], bool]]":
    """Ctrl-C and SIGTERM end a job between rounds; a second one ends it at once."""
    asked = False

    def stop(number: int, _: object) -> None:
        nonlocal asked
        if asked:
            _leave(number, None)
        asked = True
        note("stopping after this round")

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
