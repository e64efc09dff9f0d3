"""The files of one side of TLS: certificate, key, authorities; and whether they are others by now.

Looks at files, does not understand them. A key that others on the machine may read is refused: it
is as good as published.
"""

from dataclasses import dataclass
from pathlib import Path

from ternmq.core.errors import BadConfig
from ternmq.security.file_modes import too_open

FileStamp = tuple[int, int, int] | None
"""Of one file: changed when, how long, which; None: it is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """None: that one is not used. Without `ca` the authorities of the system are trusted."""

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise BadConfig("a certificate and its key belong together: name both files, or none")

    def stamps(self) -> tuple[FileStamp, ...]:
        """Another value when a file was written or replaced."""
        return tuple(_stamp(path) for path in (self.certificate, self.key, self.ca))

    def check(self) -> None:
        """Raises `BadConfig` where a file cannot be read, or a key by too many."""
        for what, path in (
            ("certificate", self.certificate),
            ("key", self.key),
            ("CA file", self.ca),
        ):
            if path is not None:
                mode = _too_open(what, path)
                if what == "key" and mode:
                    raise BadConfig(
                        f"others on this machine may use the key {path} (mode {mode:o}): "
                        f"chmod 600 {path}, and make another one (tern secure cert) if others "
                        "were here"
                    )


def _too_open(what: str, path: Path) -> int:
    try:
        with path.open("rb") as file:
            return too_open(file.fileno())
    except OSError as error:
        raise BadConfig(f"cannot read the {what} {path}: {error.strerror}") from error


def _stamp(path: Path | None) -> FileStamp:
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
