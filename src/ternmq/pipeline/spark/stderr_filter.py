"""Filters stderr of the JVM: leaves out the lines that come at every start.

The JVM gets a pipe for its stderr; a thread passes on, line by line, everything but a few known
lines: that Spark has no log settings of its own, that it uses an incubating module, and warnings of
its log, whose level is ERROR as soon as it can be set. Errors, crashes of the JVM and what Python
workers print come through. With `TERN_SPARK_LOG` nothing is held back.
"""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

NOISE = re.compile(
    rb"WARNING: Using incubator modules: jdk\.incubator\.vector"
    rb"|Using Spark's default log4j profile: "
    rb"|Setting default log level to "
    rb"|To adjust logging level use sc\.setLogLevel"
    rb"|\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARN "
)
LAST_WORDS_S = 2.0
"""How long a JVM that did not start may take to say why."""


@contextmanager
def quiet_start() -> Iterator[None]:
    """Processes that are started in the block have such a stderr for as long as they live."""
    if "TERN_SPARK_LOG" in os.environ:
        yield
        return
    out, into = os.pipe()
    stderr = os.dup(2)
    os.dup2(into, 2)
    os.close(into)
    passing = threading.Thread(target=_pass_on, args=(out, stderr), name="tern-stderr", daemon=True)
    passing.start()
    try:
        yield
    except BaseException:
        os.dup2(stderr, 2)
        passing.join(LAST_WORDS_S)
        raise
    os.dup2(stderr, 2)


def _pass_on(out: int, stderr: int) -> None:
    """Until the last process that has the pipe is gone."""
    with os.fdopen(out, "rb") as lines, os.fdopen(stderr, "wb", buffering=0) as target:
        for line in lines:
            if not NOISE.match(line):
                target.write(line)
