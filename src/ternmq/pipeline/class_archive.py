"""Spark's Java classes, kept ready for the next start: a class data sharing archive of the JVM.

Starting Spark on one machine is mostly loading classes. A JVM can write down what it loaded and map
it the next time instead of loading and checking it again. The file is made once, by `make`, for
this Java and this PySpark; it is used where it is found, and only for local masters. A JVM that
finds it unfit goes on without it. Never made behind anybody's back: it is 160 MB.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from pyspark.sql import SparkSession

from ternmq.core.errors import Unavailable

FOLDER = "TERN_CACHE"
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""A JVM tells at length which classes it does not keep."""


def path() -> Path | None:
    """Where the archive for this machine's Java and PySpark is, or would be; None without Java."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return None
    real = Path(java).resolve()
    known = f"{real} {real.stat().st_mtime_ns} {version('pyspark')}"
    digest = hashlib.blake2b(known.encode(), digest_size=8).hexdigest()
    base = os.environ.get(FOLDER) or Path.home() / ".cache" / "ternmq"
    return Path(base) / f"spark-{digest}.jsa"


def options() -> str:
    """What a JVM is told to use the archive; empty where there is none."""
    found = path()
    if found is None or not found.exists():
        return ""
    return f"-XX:SharedArchiveFile={found} {QUIET}"


def make(start: Callable[[dict[str, str]], SparkSession]) -> Path:
    """Run a small job on a Spark of its own and keep its classes; returns the file.

    `start` makes a local session with these settings.
    """
    target = path()
    if target is None:
        raise Unavailable("Spark needs Java 17 or later; none is in the path or JAVA_HOME")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"cannot write to {target.parent}: {error.strerror}") from error
    made = target.with_suffix(f".{os.getpid()}")
    wanted = {"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={made} {QUIET}"}
    spark = start(wanted)
    rows = spark.range(1_000).selectExpr(
        "id % 7 as k", "cast(id as string) as t", "map('a', 'b') as m"
    )
    rows.where("t like '%1'").groupBy("k").count().orderBy("k").toArrow()
    gateway = spark.sparkContext._gateway
    spark.stop()
    assert gateway is not None and gateway.proc is not None, "a local session has its own JVM"
    gateway.proc.stdin.close()  # The JVM ends, and writes.
    gateway.proc.wait()
    if not made.exists():
        raise Unavailable("this Java wrote no archive of its classes; jobs start without one")
    made.replace(target)
    return target
