"""Spark's Java classes, kept ready for the next start: a class data sharing archive of the JVM.

Starting Spark on one machine is mostly loading classes. A JVM can write down what it loaded and map
it the next time instead of loading and checking it again. The file is made once, by `make`, for
this Java and this PySpark; it is used where it is found, and only for local masters. A JVM that
finds it unfit goes on without it. Written beside its place and renamed when it is whole, so nobody
uses half of one (a JVM would crash); what a killed `make` left is removed by the next. Never made
behind anybody's back: it is 160 MB.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from pyspark.sql import SparkSession

from ternmq.core.errors import Unavailable

FOLDER = "TERN_CACHE"
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""A JVM tells at length which classes it does not keep."""
WRITE_WITHIN_S = 600.0


def _java() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    return Path(java).resolve() if java is not None and Path(java).exists() else None


def path() -> Path | None:
    """Where the archive for this machine's Java and PySpark is, or would be; None without Java."""
    real = _java()
    if real is None:
        return None
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
    _remove_leftovers(target)
    made = target.with_suffix(f".{os.getpid()}")
    try:
        _run(start({"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={made} {QUIET}"}))
        if not made.exists():
            raise Unavailable("this Java wrote no archive of its classes; jobs start without one")
        _check(made)
        made.replace(target)
    finally:
        made.unlink(missing_ok=True)
    return target


def _run(spark: SparkSession) -> None:
    """A job that uses what jobs use; then the JVM ends, and writes."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None and gateway.proc is not None, "a local session has its own JVM"
    java: subprocess.Popen[bytes] = gateway.proc
    try:
        rows = spark.range(1_000).selectExpr(
            "id % 7 as k", "cast(id as string) as t", "map('a', 'b') as m"
        )
        rows.where("t like '%1'").groupBy("k").count().orderBy("k").toArrow()
        spark.stop()
        assert java.stdin is not None
        java.stdin.close()
        if java.wait(WRITE_WITHIN_S) != 0:
            raise Unavailable(f"Java ended with {java.returncode} while it wrote down its classes")
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"Java did not write down its classes within {WRITE_WITHIN_S:g} s; is the disk full?"
        ) from None
    finally:
        if java.poll() is None:
            java.kill()
            java.wait()


def _check(made: Path) -> None:
    """A JVM that maps half a file crashes: so it is synced, and was used once, before others do."""
    with made.open("rb") as file:
        os.fsync(file.fileno())
    command = [str(_java()), f"-XX:SharedArchiveFile={made}", "-XX:ErrorFile=/dev/null"]
    tried = subprocess.run(
        [*command, *QUIET.split(), "-version"], capture_output=True, check=False, timeout=60
    )
    if tried.returncode != 0:
        raise Unavailable("Java cannot use the archive of its classes that it wrote: disk full?")


def _remove_leftovers(target: Path) -> None:
    """What was begun by processes that are gone."""
    for path in target.parent.glob(f"{target.stem}.*"):
        number = path.suffix.removeprefix(".")
        if number.isdigit() and not Path(f"/proc/{number}").exists():
            path.unlink(missing_ok=True)
