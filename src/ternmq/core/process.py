"""This process: its version, for HELLO, and what it uses, for STATUS."""

import resource
from pathlib import Path

VERSION = "0.1.0"
"""Of this package; written here and nowhere else, `pyproject.toml` reads it from here. Not from the
metadata of an installed package: sources also run where nothing is installed, as on a Spark
executor that got them in an archive."""


def own_cpu_s() -> float:
    """Seconds of all cores together."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def own_memory() -> int:
    """Resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
