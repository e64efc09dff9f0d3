"""The settings of the storage, checked once, before anything runs.

What an operator sets for a broker or a delay server becomes these (`broker/role.py`). Types and
limits stand with the fields and are checked by msgspec. Never reads a file or the environment.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from ternmq.batch.layout import STORED_SIZE_MAX
from ternmq.core.settings import about, check
from ternmq.core.units import DAY_MS, GIB, KIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig:
    """How data is kept. Every field has a default that is safe."""

    flush: Annotated[
        Literal["sync", "async"],
        about("sync: a message is safe when fdatasync returned; async: when the OS has it"),
    ] = "sync"
    flush_interval_ms: Annotated[
        int, about("async: the longest time that safe messages wait for fdatasync", 1)
    ] = 500
    flush_bytes: Annotated[
        int, about("async: so many bytes waiting for fdatasync are flushed at once", 1)
    ] = 16 * MIB
    segment_size: Annotated[int, about("bytes of a message log file", STORED_SIZE_MAX)] = GIB
    segment_batches_max: Annotated[
        int, about("a segment also ends here: its consume entries are held in memory", 1)
    ] = 1_000_000
    pull_segment_size: Annotated[int, about("bytes of a pull log file", 64 * KIB)] = 64 * MIB
    pull_keep: Annotated[
        int, about("bytes of delivery records that stay although no group needs them", 0)
    ] = 0
    pull_flush_interval_ms: Annotated[
        int, about("progress records wait at most this long for fdatasync", 1)
    ] = 1_000
    min_free: Annotated[
        int, about("below this much free space messages are refused; the rest is for consuming", 0)
    ] = 64 * MIB
    full_percent: Annotated[
        int, about("where so much of the disk is used messages are refused too", 1)
    ] = 100
    checkpoint_interval_ms: Annotated[int, about("between two checkpoints", 1)] = 5_000
    files_open_max: Annotated[int, about("sealed files kept open for reading, per log", 1)] = 64
    producers_max: Annotated[
        int, about("beyond so many, those silent for `producer_silence_ms` are forgotten", 1)
    ] = 100_000
    producer_batches_max: Annotated[
        int, about("batches remembered per producer to recognise repeats", 1)
    ] = 512
    producer_silence_ms: Annotated[
        int, about("how long a producer is remembered in any case", 1)
    ] = DAY_MS

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True)
class StoreOpening:
    """How a store is opened."""

    suffix: bool = False
    """What is not known to be safe stays invisible until `advance`."""
    again: bool = False
    """This process closed it so a moment ago, and `close` said that it was in order."""


AS_IT_IS = StoreOpening()
