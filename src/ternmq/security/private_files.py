"""Small files that are for one account only (0600): written whole or not at all, and synced.

Passwords, keys and secrets are made by this. Raises `OSError`; whoever asks says in his own words
what could not be written. Never reads.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path

PRIVATE = 0o600


def write_new(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """A file that is not there yet; `FileExistsError` if it is."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def make_once(path: Path, content: bytes) -> None:
    """Unless there is one: who comes second takes what the first one made."""
    beside = _beside(path)
    try:
        write_new(beside, content)
        with suppress(FileExistsError):
            os.link(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def replace_whole(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """In the place of one that may be there, and may be read at any moment."""
    beside = _beside(path)
    try:
        write_new(beside, content, mode)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")
