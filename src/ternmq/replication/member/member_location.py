"""Where a member of a broker group lives: which group, which folder, which addresses."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLocation:
    """The place of one server; it stays the same while the server runs."""

    broker_group: str
    data_dir: Path
    """Of the process; each kind of server has a folder in it."""
    host: str
    """The address on which it listens."""
    port: int
    address: str
    """By which others find it."""
