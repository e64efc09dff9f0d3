"""What this process uses, for STATUS."""

import resource
from pathlib import Path


def own_cpu_s() -> float:
    """Seconds of all cores together."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def own_memory() -> int:
    """Resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
