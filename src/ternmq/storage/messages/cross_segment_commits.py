"""Committed messages whose bytes lie in an older segment than the commit that made them visible.

A half batch stays where it was staged, its sequences come with the control batch. When there is the
beginning of a segment in between, the older segment *lends* bytes to the younger one: it must live
as long as messages of the commit's age do, and when it goes those messages go too, with all of
their topic that is before them. So nobody ever finds a message whose bytes are gone.

Pure; part of `TransactionTable`, which keeps it in its snapshot. One entry per topic and lending
segment.
"""

from collections.abc import Callable

import msgspec

from ternmq.batch.half import PlacedHalf
from ternmq.core.errors import Corrupt


class CrossSegmentState(msgspec.Struct, array_like=True, kw_only=True):
    """Cross-segment commits as they stand in a snapshot."""

    rows: list[tuple[int, int, int, int]] = []
    """Topic id, base of the lending segment, sequence after the last row, time of the commit."""
    gone: list[tuple[int, int]] = []
    """Topic id, first sequence that is left."""


class CrossSegmentCommits:
    """Which segments lend bytes to rows of which topics."""

    def __init__(self, segment_of: Callable[[int], int]) -> None:
        self._segment_of = segment_of
        self._rows: dict[tuple[int, int], tuple[int, int]] = {}
        self.gone: dict[int, int] = {}
        """Where topics begin because a lending segment went."""

    def note(self, placed: list[PlacedHalf], control_offset: int, at_ms: int) -> None:
        """Half batches were committed by the control batch at this offset."""
        if not placed:
            return
        own = self._segment_of(control_offset)
        for half in placed:
            if half.offset >= own:
                continue
            try:
                key = (half.topic_id, self._segment_of(half.offset))
            except Corrupt:
                continue  # It was there, so it went since, with everything it had lent.
            end, newest_ms = self._rows.get(key, (0, 0))
            self._rows[key] = (max(end, half.sequence + half.count), max(newest_ms, at_ms))

    def firsts(self, end: int) -> dict[int, int]:
        """Where topics begin once the segments below this offset are gone."""
        firsts: dict[int, int] = {}
        for (topic_id, base), (after, _) in list(self._rows.items()):
            if base < end:
                firsts[topic_id] = max(after, firsts.get(topic_id, 0))
        return firsts

    def newest_ms(self, end: int) -> int:
        """When the segments below this offset lent last; 0: they did not."""
        times = [at_ms for (_, base), (_, at_ms) in list(self._rows.items()) if base < end]
        return max(times, default=0)

    def let_go(self, end: int, floors: dict[int, int]) -> None:
        """The segments below this offset go; topics stand at `floors` at the beginning of what is
        left so far, which says enough where it is higher."""
        for topic_id, first in self.firsts(end).items():
            self.gone[topic_id] = max(first, self.gone.get(topic_id, 0))
        for topic_id, first in list(self.gone.items()):
            if floors.get(topic_id, 0) >= first:
                del self.gone[topic_id]
        for key in list(self._rows):  # In place: the loop may note rows of a commit meanwhile.
            if key[1] < end:
                del self._rows[key]

    def state(self) -> CrossSegmentState:
        rows = [(*key, *row) for key, row in list(self._rows.items())]
        return CrossSegmentState(rows=rows, gone=list(self.gone.items()))

    def restore(self, state: CrossSegmentState) -> None:
        self._rows = {(topic, base): (end, at_ms) for topic, base, end, at_ms in state.rows}
        self.gone = dict(state.gone)
