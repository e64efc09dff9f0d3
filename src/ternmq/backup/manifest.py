"""What one backup consists of: every file with its size and the hashes of its parts.

Parts lie in the vault once, under their hash, however many backups have them. A manifest is JSON,
so that a person can read it, and is written last: a backup without one does not exist.
"""

from datetime import UTC, datetime

import msgspec

from ternmq.core.errors import Corrupt
from ternmq.core.units import MIB

FORMAT = 1
PART_SIZE = 32 * MIB
PREFIX = "backups/"
SUFFIX = ".json"
_TIME = "%Y%m%dT%H%M%S.%fZ"


class BackedUpFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the data directory, by its path below it."""

    path: str
    size: int
    parts: list[str]
    """SHA-256 of every `PART_SIZE` bytes: of a log that grew only its last parts are new."""
    mode: int = 0o600
    version: tuple[int, int] = (0, 0)


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """One backup."""

    format: int
    made_at: str
    """When the files were as they are here, UTC; also the name of the backup."""
    source: str
    release: str
    files: list[BackedUpFile]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def name_of(now_ms: int) -> str:
    """Sorts by time."""
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    return moment.strftime(_TIME)


def manifest_path(name: str) -> str:
    return f"{PREFIX}{name}{SUFFIX}"


def object_path(sha256: str) -> str:
    """Where these bytes lie in a vault."""
    return f"objects/{sha256[:2]}/{sha256}"


def to_json(manifest: BackupManifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)


def from_json(content: bytes, name: str) -> BackupManifest:
    """Raises `Corrupt` for what is no manifest of ours."""
    try:
        manifest = msgspec.json.decode(content, type=BackupManifest)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"backup {name} cannot be read: {error}") from error
    if manifest.format != FORMAT:
        raise Corrupt(f"backup {name} has format {manifest.format}, this release reads {FORMAT}")
    for file in manifest.files:
        parts = file.path.split("/")
        if not all(parts) or ".." in parts or "." in parts or "\\" in file.path:
            raise Corrupt(f"backup {name} names a file outside its directory: {file.path!r}")
        if not all(len(part) == 64 and part.isalnum() for part in file.parts):
            raise Corrupt(f"backup {name}: a hash of {file.path!r} is none")
    return manifest
