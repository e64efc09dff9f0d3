"""Whether the Python that Spark's workers run has ternmq, and what to set if it has not.

Spark starts workers with `PYSPARK_PYTHON`, or whichever `python3` is first in the path, which need
not be the Python of the driver. Without ternmq there every query fails with a stack of Java. Asked
once when the format is registered, and only where that Python is another one than this.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from ternmq.core.errors import BadRequest

PROBE = "import ternmq.pipeline.source.source"
PROBE_S = 60.0
MISSING = "No module named 'ternmq'"
HELP = (
    "set PYSPARK_PYTHON to a Python that has ternmq[spark] before the session starts "
    "(on a cluster: on every machine, or spark.pyspark.python), or install ternmq[spark] there"
)


def check_workers(spark: SparkSession) -> None:
    """Refuse a session whose workers could not run our source and sink."""
    try:
        python = spark.sparkContext.pythonExec
    except Exception:  # Spark Connect: the server's affair.
        return
    found = shutil.which(python)
    if found is None or Path(found).samefile(sys.executable):
        return  # Of a path on other machines nothing is known here.
    reason = why_not(found)
    if reason:
        raise BadRequest(
            f"Spark's workers run {found}, which cannot load ternmq ({reason}); {HELP}"
        )


def why_not(python: str) -> str:
    """Why this Python cannot load our source; empty if it can."""
    try:
        probe = subprocess.run(
            [python, "-c", PROBE], capture_output=True, text=True, timeout=PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if probe.returncode == 0:
        return ""
    return (probe.stderr.strip().splitlines() or ["it ended without a word"])[-1]
