"""One node per data directory: a lock file that the operating system releases with the process.

The file stays when the node stops: removing it would let two nodes lock two different files of
the same name. It holds the pid of its owner, for the message and for people.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ternmq.core.errors import BadConfig

LOCK_NAME = "lock"
PID_SIZE_MAX = 32


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Own `data_dir` (made if it is not there) while the block runs."""
    path = data_dir / LOCK_NAME
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BadConfig(f"cannot use {data_dir} for data: {error.strerror}") from error
    try:
        _take(handle, data_dir)
        yield
    finally:
        os.close(handle)


def _take(handle: int, data_dir: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(handle, PID_SIZE_MAX, 0).decode("ascii", "replace").strip() or "unknown"
        raise BadConfig(
            f"{data_dir.resolve()} is in use by another node (pid {owner}); "
            "stop it, or choose another directory with --data-dir"
        ) from error
    except OSError as error:
        raise BadConfig(f"cannot lock {data_dir}: {error.strerror}") from error
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        pass  # A full disk must not keep a node from starting; only the pid is missing then.
