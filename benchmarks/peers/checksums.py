"""SHA-256 of everything that is downloaded for the peers, compared before any of it is run.

`checksums.txt` has one line a file, as `sha256sum` writes it. A file that is not in it, or is
another one, is refused: a benchmark does not run what nobody has looked at. A new version of a peer
is written down by `python -m benchmarks.peers.install --record PEER`, and reviewed like code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

LIST = Path(__file__).with_name("checksums.txt")


class WrongChecksum(ValueError):
    """What was downloaded is not what is written down."""


def known(source: Path = LIST) -> dict[str, str]:
    """Checksum by name."""
    lines = source.read_text(encoding="utf-8").splitlines() if source.exists() else []
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines) if name}


def check(files: Iterable[Path], below: Path, *, record: bool = False, source: Path = LIST) -> None:
    """Compare files, named from `below`; raises `WrongChecksum`. `record`: write them down."""
    found = {file.relative_to(below).as_posix(): _digest(file) for file in files}
    listed = known(source)
    if record:
        listed |= found
        lines = (f"{digest}  {name}\n" for name, digest in sorted(listed.items()))
        source.write_text("".join(lines), encoding="utf-8")
    for name, digest in found.items():
        if name not in listed:
            raise WrongChecksum(
                f"no checksum is known for {name}: look where it is from, then say --record"
            )
        if listed[name] != digest:
            raise WrongChecksum(f"{name} is not what it was: {digest}, not {listed[name]}")


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
