"""Leader epochs of a log: for every epoch the offset where it began.

An epoch is one leadership by one process start, so two logs that both have bytes of an epoch have
the same bytes there and everywhere before, as far as both go. That makes it easy to say up to where
two histories agree (`common_end`) and what a returning member has to cut off.

`own` says that this very member led the epoch. It decides whose `durable_to` marks count in a
recovery: a mark in bytes that came from another master speaks of that master's disk.

Pure values and the bytes of the file `epochs`, which is replaced as a whole. Little-endian.

    at  size  field
     0     4  magic         b"EPOC"
     4     4  crc           CRC-32C of bytes 8..
     8     4  version       1
    12     4  logs          2: message log, pull log
    16     .  per log: cut u64 (the log must end here before it is used; 2^64 - 1: nothing to cut),
              count u32, 4 spare; then per epoch: epoch u64, start u64, own u8, 7 spare
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ternmq.core.errors import Corrupt
from ternmq.storage.files.whole_file import pack_whole, read_whole

MAGIC = b"EPOC"
VERSION = 1
HEADER = struct.Struct("<II")
LOG = struct.Struct("<QI4x")
EPOCH = struct.Struct("<QQB7x")
NO_CUT = 2**64 - 1
EPOCHS_MAX = 1_000
"""Of one log; the oldest are forgotten. Who was away for so many starts of masters begins anew."""
BEFORE = 0
"""Stands for the masters before the first epoch that is known; two logs never share it."""

MESSAGES, PULLS = 0, 1

Starts = Sequence[tuple[int, int]]
"""(epoch, start), as it travels between members."""


class EpochStart(NamedTuple):
    """From `start` on the log was written by the master of this epoch."""

    number: int
    start: int
    own: bool


@dataclass(frozen=True, slots=True)
class LeaderEpochs:
    """The epochs of one log; numbers and starts rise. Changing gives a new table."""

    epochs: tuple[EpochStart, ...] = ()

    @property
    def last(self) -> int:
        """The latest epoch; 0 if none is known."""
        return self.epochs[-1].number if self.epochs else 0

    @property
    def starts(self) -> list[tuple[int, int]]:
        return [(epoch.number, epoch.start) for epoch in self.epochs if epoch.number != BEFORE]

    def begun(self, number: int, start: int) -> "LeaderEpochs":
        """This member leads from here on. An epoch that wrote nothing makes room for the next."""
        assert number > self.last, "an epoch is never used twice"
        kept = [epoch for epoch in self.epochs if epoch.start < start]
        return LeaderEpochs((*kept, EpochStart(number, start, own=True))[-EPOCHS_MAX:])

    def adopted(self, starts: Starts, *, empty: bool) -> "LeaderEpochs":
        """The table of the master that is followed; what was led here before stays known as own.

        `empty`: nothing of the log was written here yet, so nothing in it will be own.
        """
        own = {epoch.number for epoch in self.epochs if epoch.own}
        epochs = [EpochStart(number, start, number in own) for number, start in starts]
        before = [epoch for epoch in self.epochs if epoch.number == BEFORE]
        if empty and (not epochs or epochs[0].start > 0):
            before = [EpochStart(BEFORE, 0, own=False)]
        return LeaderEpochs((*before, *epochs)[-EPOCHS_MAX:])

    def cut(self, end: int) -> "LeaderEpochs":
        """The log ends here now."""
        return LeaderEpochs(tuple(epoch for epoch in self.epochs if epoch.start < end))

    def is_own(self, offset: int) -> bool:
        """Did this member write the byte at this offset as master?"""
        for epoch in reversed(self.epochs):
            if epoch.start <= offset:
                return epoch.own
        return True  # Of a release before there were replicas.


def common_end(mine: Starts, mine_end: int, theirs: Starts, theirs_end: int) -> int:
    """The last offset up to which both logs are known to be the same; 0 if none is.

    Both followed the newest epoch that both know, so both are what its master had, each as far as
    its part of that epoch goes.
    """
    ours = _ends(mine, mine_end)
    others = _ends(theirs, theirs_end)
    shared = ours.keys() & others.keys()
    if not shared:
        return 0
    newest = max(shared)
    return min(ours[newest], others[newest])


def _ends(starts: Starts, end: int) -> dict[int, int]:
    """Where the log stops being that of each epoch's master."""
    following = [start for _, start in starts[1:]]
    return {
        number: min(after, end)
        for (number, _), after in zip(starts, [*following, end], strict=False)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """The content of the file: tables of both logs, and cuts that were begun."""

    messages: LeaderEpochs = field(default_factory=LeaderEpochs)
    pulls: LeaderEpochs = field(default_factory=LeaderEpochs)
    message_cut: int | None = None
    pull_cut: int | None = None

    @property
    def last(self) -> int:
        return max(self.messages.last, self.pulls.last)


def encode(epochs: Epochs) -> bytes:
    logs = ((epochs.message_cut, epochs.messages), (epochs.pull_cut, epochs.pulls))
    body = HEADER.pack(VERSION, len(logs))
    for cut, table in logs:
        body += LOG.pack(NO_CUT if cut is None else cut, len(table.epochs))
        body += b"".join(EPOCH.pack(*epoch) for epoch in table.epochs)
    return pack_whole(MAGIC, body)


def decode(content: bytes) -> Epochs:
    """Raises `Corrupt` when this is not a whole epochs file."""
    body = read_whole(content, MAGIC, "the epochs file", body_min=HEADER.size)
    version, logs = HEADER.unpack_from(body)
    if version != VERSION or logs != 2:
        raise Corrupt(f"the epochs file has version {version}, this is version {VERSION}")
    (message_cut, messages), at = _decode_log(body, HEADER.size)
    (pull_cut, pulls), _ = _decode_log(body, at)
    return Epochs(messages=messages, pulls=pulls, message_cut=message_cut, pull_cut=pull_cut)


def _decode_log(body: memoryview, at: int) -> tuple[tuple[int | None, LeaderEpochs], int]:
    cut, count = LOG.unpack_from(body, at)
    at += LOG.size
    rows: Iterable[tuple[int, int, int]] = EPOCH.iter_unpack(body[at : at + count * EPOCH.size])
    table = LeaderEpochs(tuple(EpochStart(number, start, bool(own)) for number, start, own in rows))
    return (None if cut == NO_CUT else cut, table), at + count * EPOCH.size
