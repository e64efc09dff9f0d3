"""What a replay from an archive is, written down when it begins, and how its rows are cut. Pure.

The plan lies in the archive beside the commit log, under the replay's name. It pins what must not
change when the replay goes on later: which messages, up to where, to which broker group each line
of them goes, and how many share a batch. Batches are cut greedily from a line's beginning, so a
replay that goes on at the end of any batch cuts the rest as it was cut before.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from ternmq.batch.encoder import split_rows
from ternmq.core.errors import BadRequest, Corrupt
from ternmq.core.ids import check_name
from ternmq.core.units import MIB

PLANS = "_tern/replays"
VERSION = 1
BLOCK_ROWS = 256
"""Sequences that are counted together; a step is made of whole blocks."""
STEP_ROWS_MAX = 100_000
STEP_SIZE_MAX = 64 * MIB
BATCH_ROWS_MAX = 4_096
BATCH_SIZE_MAX = MIB


class ReplayPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A replay that has begun."""

    version: int = VERSION
    name: str
    topic: str
    to_topic: str = ""
    group: str = ""
    where: str = ""
    cluster: str = ""
    """The one that the messages go to."""
    batch_rows: int
    ends: dict[str, int]
    """How far each line was archived when the replay began; a line is a broker group's."""
    targets: dict[str, str]
    """The broker group that each line goes to."""
    sources: dict[str, str] = {}
    """Which messages each line is, of all clusters and topics: two archives may have the same
    sequences. Empty in plans of before: there it is the line's name."""

    def choice(self) -> tuple[str, ...]:
        return (self.topic, self.to_topic, self.group, self.where)


class ReplayDone(msgspec.Struct, frozen=True, kw_only=True):
    """A replay that has ended."""

    name: str
    ended_at_ms: int


@dataclass(frozen=True, slots=True)
class Block:
    """Chosen messages whose sequences lie close together."""

    line: str
    number: int
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class Step:
    """A range of one line that fits into memory at once."""

    line: str
    first: int
    end: int
    rows: int


def derived_name(topic: str, to_topic: str, group: str, where: str) -> str:
    """The name of a replay that was given none: the same for the same choice."""
    digest = hashlib.blake2b(repr((topic, to_topic, group, where)).encode(), digest_size=6)
    return f"replay-{digest.hexdigest()}"


def check_choice(topic: str, to_topic: str, group: str) -> None:
    if bool(to_topic) == bool(group):
        raise BadRequest("say where to: either --to-topic TOPIC or --group GROUP")
    check_name("topic", topic)
    check_name("topic", to_topic) if to_topic else check_name("group", group)


def batch_rows(rate: int) -> int:
    """So many messages share a batch that a rate is held five times a second."""
    return min(BATCH_ROWS_MAX, max(1, rate // 5)) if rate else BATCH_ROWS_MAX


def targets(lines: Iterable[str], groups: Sequence[str]) -> dict[str, str]:
    """Each line goes to the broker group of its name, or where there is none, to one by turns."""
    known = sorted(groups)
    return {
        line: line if line in known else known[turn % len(known)]
        for turn, line in enumerate(sorted(lines))
    }


def steps(blocks: Iterable[Block], begun: dict[str, int], ends: dict[str, int]) -> list[Step]:
    """The blocks in order, joined while they are small together."""
    made: list[Step] = []
    size = 0
    for block in sorted(blocks, key=lambda block: (block.line, block.number)):
        first = max(block.number * BLOCK_ROWS, begun.get(block.line, 0))
        end = min((block.number + 1) * BLOCK_ROWS, ends[block.line])
        last = made[-1] if made else None
        if (
            last is not None
            and last.line == block.line
            and last.rows + block.rows <= STEP_ROWS_MAX
            and size + block.size <= STEP_SIZE_MAX
        ):
            made[-1] = Step(last.line, last.first, end, last.rows + block.rows)
            size += block.size
        else:
            made.append(Step(block.line, first, end, block.rows))
            size = block.size
    return made


def cut(sizes: Sequence[int] | np.ndarray, rows_max: int, *, last: bool) -> list[tuple[int, int]]:
    """Rows that share a batch. Unless they are the last, those that may get more are left over."""
    ranges = split_rows(sizes, rows_max=rows_max, size_max=BATCH_SIZE_MAX)
    return ranges if last else ranges[:-1]


def encode(record: ReplayPlan | ReplayDone) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record))


def decode(path: str, data: bytes) -> ReplayPlan:
    try:
        plan = msgspec.json.decode(data, type=ReplayPlan)
    except msgspec.DecodeError as error:
        raise Corrupt(f"{path} cannot be read: {error}") from error
    if plan.version != VERSION:
        raise BadRequest(f"{path} is of version {plan.version}; this is version {VERSION}")
    return plan
