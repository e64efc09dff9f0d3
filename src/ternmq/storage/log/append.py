"""One batch on its way into the message log, and a group of them."""

from dataclasses import dataclass
from typing import Literal

from ternmq.batch.half import HalfDecision, HalfInfo, PlacedHalf
from ternmq.storage.log.write_plan import WritePlan


@dataclass(slots=True, kw_only=True)
class HalfMark:
    """This batch is a half batch: it gets no sequence."""

    info: HalfInfo
    app: str


@dataclass(slots=True, kw_only=True)
class Ending:
    """This batch is a decision about half batches; `stage` gives them sequences and encodes it."""

    kind: Literal["commit", "rollback", "drop"]
    transactions: list[bytes]
    halves: list[PlacedHalf]
    """What to make visible; their `sequence` is not known yet."""
    decision: HalfDecision | None = None


def committed(special: HalfMark | Ending) -> list[PlacedHalf]:
    """The half batches that become visible with this."""
    if isinstance(special, HalfMark) or special.decision is None:
        return []
    return special.decision.placed


@dataclass(slots=True, kw_only=True)
class Append:
    """A checked batch and what the broker knows of it. `stage` fills in the last three fields."""

    batch: bytearray | memoryview
    """Writable; the broker's fields are stamped into it in place."""
    topic_id: int
    count: int
    received_at_ms: int
    client_ip: bytes = bytes(16)
    client_port: int = 0
    server_ip: bytes = bytes(16)
    server_port: int = 0
    tag_bloom: int = 0
    priority: int = 0
    producer: tuple[int, int]
    """Start and random of the producer's incarnation."""
    first_sequence: int
    searchable: bool = False
    """Some row has a key or an id of its own: the index looks into the batch."""
    special: HalfMark | Ending | None = None
    """Not messages that are visible once they are safe."""
    offset: int = -1
    base_sequence: int = -1
    stored_at_ms: int = 0


@dataclass(slots=True, kw_only=True)
class StagedBatches:
    """A group with offsets and sequences, written by one `write`, visible after `commit`."""

    appends: list[Append]
    plan: WritePlan
    ends: dict[int, int]
    """Topic id to the sequence after this group, for every topic in it."""
    stored_at_ms: int
    written: bool = False
