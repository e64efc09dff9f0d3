"""The Spark session of a job: `local[*]` unless told otherwise, our format registered.

Workers run this very interpreter, unless the cluster names its own: Spark would take whichever
`python3` is first in the path. Checkpoint files on local disks use Spark's rename-based manager:
the default one starts dozens of processes for each micro-batch. Local sessions start from the class
archive, if one was made. What the user configures wins.
"""

import os
import re
import signal
import sys
from collections.abc import Mapping
from contextlib import nullcontext

from pyspark.sql import SparkSession

from ternmq.core.errors import BadRequest, Unavailable
from ternmq.pipeline import register
from ternmq.pipeline.spark import class_archive
from ternmq.pipeline.spark.stderr_filter import quiet_start
from ternmq.pipeline.spark.worker_python import HELP, MISSING

LOCAL = "local[*]"
CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS,
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # Topic "17" is a name.
}
_OURS = re.compile(r"^(?:.*Error: |.*: )?ternmq\.[\w.]+: (.+)$", re.MULTILINE)


def spark_session(
    name: str, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start or find the session; `master` None leaves it to spark-submit, else `local[*]`."""
    builder = SparkSession.builder.appName(f"ternmq {name}")
    submitted = "SPARK_ENV_LOADED" in os.environ  # By spark-submit, which knows the master.
    wanted = dict(DEFAULTS) | dict(conf or {})
    configured = wanted.pop("spark.master", None)
    master = master or configured
    if master is None and not submitted:
        master = os.environ.get("MASTER", LOCAL)
    if master is not None:
        check_master(master)
        builder = builder.master(master)
    if (master or "").startswith("local"):
        if ready := class_archive.options():
            wanted.setdefault("spark.driver.extraJavaOptions", ready)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for key, value in wanted.items():
        builder = builder.config(key, value)
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        with nullcontext() if submitted else quiet_start():
            spark = builder.getOrCreate()
    except Exception as error:  # pyspark has no common error for "no Java", "no such master" …
        raise Unavailable(f"Spark does not start: {first_line(error)}") from error
    if signal.getsignal(signal.SIGINT) != on_interrupt != signal.default_int_handler:
        # PySpark took it, for a way to stop its jobs; a caller's own stays.
        signal.signal(signal.SIGINT, on_interrupt)
    spark.sparkContext.setLogLevel(os.environ.get("TERN_SPARK_LOG", "ERROR"))
    register(spark)
    return spark


def check_master(master: str) -> None:
    """Refuse a word that is no master; Spark would tell it with a stack of Java."""
    if "://" not in master and not re.fullmatch(r"local(-cluster)?(\[.*\])?|yarn", master):
        raise BadRequest(
            f"{master!r} is no Spark master: write local[2], spark://HOST:7077, k8s://… or yarn"
        )


def first_line(error: BaseException) -> str:
    """What a Spark error says to people: its Java stack is for its log.

    Where our own code failed inside a task, it is what that said; else Spark's first line.
    """
    thrown = getattr(error, "java_exception", None)  # py4j itself says only what it called.
    text = str(thrown or error).strip() or type(error).__name__
    if MISSING in text:
        return f"the Python of Spark's workers has no ternmq; {HELP}"
    ours = _OURS.findall(text)
    return ours[-1].strip() if ours else text.splitlines()[0]
