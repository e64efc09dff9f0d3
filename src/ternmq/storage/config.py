"""The settings of the storage, checked once, before anything runs."""

from dataclasses import dataclass
from typing import Literal

from ternmq.batch.layout import STORED_SIZE_MAX
from ternmq.core.errors import BadConfig
from ternmq.core.units import DAY_MS, GIB, KIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig:
    """How data is kept. Every field has a default that is safe."""

    flush: Literal["sync", "async"] = "sync"
    """sync: a message is safe when fdatasync returned. async: when the OS has it."""
    flush_interval_ms: int = 500
    """Async only: the longest time that safe messages wait for fdatasync."""
    flush_bytes: int = 16 * MIB
    """Async only: so many bytes waiting for fdatasync are flushed at once."""
    segment_size: int = GIB
    segment_batches_max: int = 1_000_000
    """A segment also ends here, so the consume entries held in memory are bounded."""
    pull_segment_size: int = 64 * MIB
    pull_keep: int = 0
    """So many bytes of delivery records stay although no group needs them."""
    pull_flush_interval_ms: int = 1_000
    """Progress records wait at most this long for fdatasync."""
    min_free: int = 64 * MIB
    """Below this much free space messages are refused; what is left is for consuming."""
    full_percent: int = 100
    """Where so much of the disk is used messages are refused too."""
    checkpoint_interval_ms: int = 5_000
    files_open_max: int = 64
    """Sealed files kept open for reading, per log."""
    producers_max: int = 100_000
    """Beyond this many, producers silent for `producer_silence_ms` are forgotten."""
    producer_batches_max: int = 512
    """Batches remembered per producer to recognise repeats."""
    producer_silence_ms: int = DAY_MS

    def __post_init__(self) -> None:
        if self.flush not in ("sync", "async"):
            raise BadConfig(f"flush is {self.flush!r}; it can be 'sync' or 'async'")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise BadConfig(f"{name} is {value!r}; it must be a whole number, at least {least}")


_LEAST = {
    "flush_interval_ms": 1,
    "flush_bytes": 1,
    "segment_size": STORED_SIZE_MAX,
    "segment_batches_max": 1,
    "pull_segment_size": 64 * KIB,
    "pull_keep": 0,
    "pull_flush_interval_ms": 1,
    "min_free": 0,
    "full_percent": 1,
    "checkpoint_interval_ms": 1,
    "files_open_max": 1,
    "producers_max": 1,
    "producer_batches_max": 1,
    "producer_silence_ms": 1,
}


@dataclass(frozen=True, slots=True)
class StoreOpening:
    """How a store is opened."""

    suffix: bool = False
    """What is not known to be safe stays invisible until `advance`."""
    again: bool = False
    """This process closed it so a moment ago, and `close` said that it was in order."""


AS_IT_IS = StoreOpening()
