"""This process: its release, for HELLO, and what it uses, for STATUS."""

import resource
from functools import cache
from importlib.metadata import version
from pathlib import Path


@cache
def release() -> str:
    """As pip knows it. Looked up once: reading the metadata of a package takes a millisecond."""
    return version("ternmq")


def own_cpu_s() -> float:
    """Seconds of all cores together."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def own_memory() -> int:
    """Resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
