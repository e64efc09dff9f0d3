"""This process: its version, for HELLO; its event loop; what it uses, for STATUS.

uvloop is half the price of a small request, and there are systems without it (Windows, the newest
Pythons for a while): what TernMQ starts then runs on the loop of asyncio.
"""

import os
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio  # Who asks for the version only does without it.

T = TypeVar("T")

VERSION = "0.1.0"
"""Of this package; written here and nowhere else, `pyproject.toml` reads it from here. Not from the
metadata of an installed package: sources also run where nothing is installed, as on a Spark
executor that got them in an archive."""


def new_event_loop() -> "asyncio.AbstractEventLoop":
    """The fastest loop there is on this machine."""
    import asyncio

    try:
        import uvloop  # Not needed by those who only import.
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on that loop."""
    import asyncio

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


def own_cpu_s() -> float:
    """Seconds of all cores together."""
    return time.process_time()


def own_memory() -> int:
    """Resident bytes of this process; where there is no /proc the most it ever had."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except FileNotFoundError:
        return peak_memory()
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_memory() -> int:
    """The most resident bytes this process ever had."""
    import resource
    import sys

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
