"""Where backups lie: a folder, or anything that pyarrow has a file system for (s3://…).

Objects are written under a temporary name and renamed (a folder), or put as a whole (S3), so one
that is there is complete. Never overwrites an object: its name is the hash of its bytes.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from ternmq.core.errors import BadRequest, Corrupt, TernError, Unavailable

FILE_SCHEME = "file://"
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class BackupStore(Protocol):
    """A place for bytes by name."""

    def put(self, name: str, content: bytes) -> None:
        """Durable when this returns."""

    def get(self, name: str) -> bytes:
        """All bytes; raises `Corrupt` if it is not there."""

    def has(self, name: str) -> bool: ...

    def names(self, prefix: str) -> list[str]:
        """All names that begin so, sorted."""

    def remove(self, name: str) -> None: ...


def open_backup_store(url: str) -> BackupStore:
    """A folder by its path or as file://, or a URL with a scheme that pyarrow knows."""
    if "://" in url and not url.startswith(FILE_SCHEME):
        return ArrowBackupStore(url)
    return FolderBackupStore(Path(url.removeprefix(FILE_SCHEME)))


class FolderBackupStore:
    """A folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, name: str, content: bytes) -> None:
        path = self._folder / name
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.fdopen(os.open(temporary, NEW_FILE, 0o600), "wb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            temporary.rename(path)
            sync_folder(path.parent)
        except OSError as error:
            raise Unavailable(f"cannot write {path}: {error.strerror}") from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def get(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            raise Corrupt(f"{name} is not in {self._folder}") from None
        except OSError as error:
            raise Unavailable(f"cannot read {self._folder / name}: {error.strerror}") from error

    def has(self, name: str) -> bool:
        return (self._folder / name).is_file()

    def names(self, prefix: str) -> list[str]:
        folder = self._folder / prefix
        found = folder.rglob("*") if folder.is_dir() else ()
        names = (path.relative_to(self._folder).as_posix() for path in found if path.is_file())
        return sorted(name for name in names if not name.endswith(".tmp"))

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)


class ArrowBackupStore:
    """A URL that pyarrow has a file system for."""

    def __init__(self, url: str) -> None:
        try:
            from pyarrow import fs
        except ImportError:
            raise BadRequest(
                "backups to a URL need pyarrow: pip install 'ternmq[spark]', or give a folder"
            ) from None
        self._fs: Any = fs
        try:
            self._files, self._root = fs.FileSystem.from_uri(url)
        except Exception as error:
            raise BadRequest(
                f"{url.partition('?')[0]!r} cannot be used for backups: {error}"
            ) from error

    def put(self, name: str, content: bytes) -> None:
        with _vault_errors(name), self._files.open_output_stream(self._path(name)) as out:
            out.write(content)

    def get(self, name: str) -> bytes:
        if not self.has(name):
            raise Corrupt(f"{name} is not in {self._root}")
        with _vault_errors(name), self._files.open_input_stream(self._path(name)) as source:
            return bytes(source.read())

    def has(self, name: str) -> bool:
        with _vault_errors(name):
            [found] = self._files.get_file_info([self._path(name)])
        return bool(found.type == self._fs.FileType.File)

    def names(self, prefix: str) -> list[str]:
        wanted = self._fs.FileSelector(
            self._path(prefix).rstrip("/"), recursive=True, allow_not_found=True
        )
        with _vault_errors(prefix):
            found = self._files.get_file_info(wanted)
        files = (each.path for each in found if each.type == self._fs.FileType.File)
        return sorted(path.removeprefix(self._root).lstrip("/") for path in files)

    def remove(self, name: str) -> None:
        with _vault_errors(name):
            self._files.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


@contextlib.contextmanager
def _vault_errors(name: str) -> Iterator[None]:
    try:
        yield
    except TernError:
        raise
    except Exception as error:  # pyarrow raises its own kinds, and OSError for most.
        raise Unavailable(f"{name}: the place for backups failed: {error}") from error


def sync_folder(folder: Path) -> None:
    """What was renamed into it stays there."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
