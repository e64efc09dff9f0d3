"""The report of opening a data directory: what was found and done. Values only."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRange:
    """Bytes of a log that cannot be read."""

    log: str
    offset: int
    size: int
    reason: str
    copied_to: str = ""
    """Where a copy is; of a torn tail only when whole records followed the torn one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TornTail(DamagedRange):
    """The end of a log that was never safe and is gone: a torn tail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole(DamagedRange):
    """Bytes that were safe and cannot be read: corruption. They stay where they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRows:
    """Sequences of a topic that lie in a hole: reading them raises `Corrupt`."""

    topic_id: int
    first: int
    end: int


@dataclass(slots=True, kw_only=True)
class RecoveryReport:
    """One opening of the data directory."""

    unclean: bool = False
    """The last run did not close the directory."""
    cuts: list[TornTail] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    lost: list[LostRows] = field(default_factory=list)
    tables_rebuilt: list[int] = field(default_factory=list)
    """Segments whose consume table was missing or bad and was made again."""
    tail_records: int = 0
    """Consume entries taken from the tail checkpoint."""
    scanned_records: int = 0
    """Batches found by reading the message log after the checkpoint."""
    bytes_read: int = 0
    """Bytes read from message segments, consume files, producers and pull log by `open`."""
    notes: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Nothing that was safe is missing."""
        return not self.holes and not self.lost

    @property
    def damage(self) -> str:
        """For people, in one line; empty: none."""
        if self.sound:
            return ""
        size = sum(hole.size for hole in self.holes)
        rows = sum(lost.end - lost.first for lost in self.lost)
        return f"damaged: {size} bytes that were safe are lost here, with {rows} messages or more"
