"""Which files of a data directory belong into a backup, and in which order their sizes are taken.

Two kinds. A *log* only grows: its first bytes are a backup of it as it was. A *state* is a small
file that is replaced as a whole. A log that is derived from another one, or that speaks of rows in
it, is measured before that one: so what is copied never names bytes that are not. Everything of a
server's, derived tables included, so that a restored one starts as quickly as after a crash.

Left out: locks, the node secret, the first password and the key that signs tokens (who reads a
backup must be neither a server nor an admin), files that are still being written, the reserve of a
full disk, what was put aside as damaged, and the side files of a SQLite registry (it is copied by
SQLite itself). Pure.
"""

from pathlib import PurePosixPath

from ternmq.storage.files.paths import LOG_SUFFIX, TEMPORARY_SUFFIX

LOG_ORDER = ("pull", "dispatch", "schedule", "decisions", "wal", "message")
"""Folders with logs, the ones that depend on others first."""
ELSEWHERE = "wal"
"""The one of them that may lie outside of the data directory (`delay_wal_dir`)."""
REGISTRY = "registry.db"
STAGING = "backup.tmp"
_LEFT_OUT = frozenset(
    {
        "lock",
        "node-secret",
        "admin-password",
        "token-key",
        "reserve",
        f"{REGISTRY}-wal",
        f"{REGISTRY}-shm",
        f"{REGISTRY}-journal",
        f"{REGISTRY}-reserve",
    }
)
_FOLDERS_LEFT_OUT = frozenset({"quarantine", STAGING})


def belongs(path: PurePosixPath) -> bool:
    """Is this file (by its path below the data directory) part of a backup?"""
    if path.name in _LEFT_OUT or path.suffix == TEMPORARY_SUFFIX or path.name.startswith("."):
        return False
    return not any(folder in _FOLDERS_LEFT_OUT or ".aside-" in folder for folder in path.parts[:-1])


def is_log(path: PurePosixPath) -> bool:
    """Does it only grow?"""
    return path.suffix == LOG_SUFFIX and path.parent.name in LOG_ORDER


def is_registry(path: PurePosixPath) -> bool:
    return path.name == REGISTRY


def measured_after(path: PurePosixPath) -> int:
    """States first, then logs in their order; the registry last: it must know all their topics."""
    if is_registry(path):
        return len(LOG_ORDER) + 1
    return LOG_ORDER.index(path.parent.name) + 1 if is_log(path) else 0
