"""Looking into stored batches while rows are chosen: now if they are in memory, else soon.

Filters, order and priority need more than positions. What is not in memory is read by a thread, and
the group is fed again when it is there, so choosing never waits. A batch that turns out to be
damaged is counted as expired, row by row, and said so; its neighbours are not touched.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from ternmq.batch.readability import reason_of
from ternmq.batch.view import BatchView
from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.log.fetch import Fetcher
from ternmq.core.errors import Corrupt, DiskFailed, TernError, Unavailable
from ternmq.core.lifecycle import Background
from ternmq.core.log import get_logger
from ternmq.core.units import MIB
from ternmq.storage.consume.consume_log import ConsumeLog
from ternmq.storage.consume.entry import ConsumeEntry

log = get_logger()

SCAN_ROWS = 50_000  # How far is looked in one go.
SCAN_SIZE = 4 * MIB
AGAIN_S = 1.0


class Lookup(Protocol):
    """What pickers ask about stored batches; None always means: not now, the group is fed again."""

    def entries(
        self, group: ConsumerGroup, sequence: int, *, rows_max: int = ..., size_max: int = ...
    ) -> list[ConsumeEntry] | None: ...

    def view(self, group: ConsumerGroup, entry: ConsumeEntry) -> BatchView | None: ...

    def feed_soon(self, group: ConsumerGroup) -> None:
        """Serve the waiting pulls of a group once more, in the next turn of the loop."""


class BatchLookup:
    """Entries and views of one broker's batches."""

    def __init__(
        self,
        *,
        groups: ConsumerGroups,
        consume: ConsumeLog,
        fetcher: Fetcher,
        feed: Callable[[ConsumerGroup], None],
    ) -> None:
        self._groups = groups
        self._consume = consume
        self._fetcher = fetcher
        self._feed = feed
        self._loop = asyncio.get_running_loop()
        self._reading: set[asyncio.Task[None]] = set()
        # The pull that waits for it ends by its own time-out, and comes again.
        self._background = Background("looking at messages", lambda error: None)

    def entries(
        self,
        group: ConsumerGroup,
        sequence: int,
        *,
        rows_max: int = SCAN_ROWS,
        size_max: int = SCAN_SIZE,
    ) -> list[ConsumeEntry] | None:
        """Positions from a sequence on; None where they have to be read first."""
        found = self._consume.entries_nowait(
            group.topic_id, sequence, rows_max=rows_max, size_max=size_max
        )
        if found is None:
            self._warm(group, sequence)
        return found

    def feed_soon(self, group: ConsumerGroup) -> None:
        self._loop.call_soon(self._feed, group)

    def view(self, group: ConsumerGroup, entry: ConsumeEntry) -> BatchView | None:
        """A batch to look into; None where it has to be read first (the group is fed again)."""
        try:
            batches = self._fetcher.now([entry])
            if batches is not None:
                return BatchView(batches[0])
        except Corrupt as error:
            log.error("messages cannot be looked at", topic=group.topic, reason=error.message)
            self._pass_damaged(group, entry)
            return None
        self._spawn(self._read_ahead(group, entry))
        return None

    async def _read_ahead(self, group: ConsumerGroup, entry: ConsumeEntry) -> None:
        try:
            self._fetcher.keep(entry, (await self._fetcher.later([entry]))[0])
        except (Unavailable, DiskFailed) as error:
            self._feed_later(group, error)
            return
        except TernError as error:
            log.error("messages cannot be looked at", topic=group.topic, reason=error.message)
            self._pass_damaged(group, entry)
        self._feed(group)

    def _feed_later(self, group: ConsumerGroup, error: TernError) -> None:
        """Not lost: another server of the broker group has it, or this disk reads it next time."""
        if isinstance(error, DiskFailed):
            log.error("messages cannot be looked at now", topic=group.topic, reason=error.message)
        self._loop.call_later(AGAIN_S, self._feed, group)

    def _pass_damaged(self, group: ConsumerGroup, entry: ConsumeEntry) -> None:
        """Count the rows of a damaged batch as expired, once everything before it is handed out."""
        lane, base, end = group.lane, entry.base_sequence, entry.base_sequence + entry.count
        if base > lane.next:
            return  # Rows before it are chosen or ready: they are not damaged.
        for first, stop, _ in [p for p in lane.returned if p[0] < end and p[1] > base]:
            self._groups.write(group, lane.lose(max(first, base), min(stop, end)))
        self._groups.write(group, lane.skip_gap(end))
        if group.order is not None:
            group.order.scanned = max(group.order.scanned, end)
        self._loop.call_soon(self._feed, group)

    def _warm(self, group: ConsumerGroup, sequence: int) -> None:
        """Positions are not in memory: let a thread read them, then try again."""

        async def warm() -> None:
            try:
                await self._fetcher.run(
                    lambda: self._consume.entries(group.topic_id, sequence, rows_max=1, size_max=1)
                )
            except (Unavailable, DiskFailed) as error:
                self._feed_later(group, error)
                return
            self._feed(group)

        self._spawn(warm())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._background.task(work, name="look-ahead")
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)


def passing(group: ConsumerGroup, view: BatchView) -> list[tuple[int, int]]:
    """Rows that pass the group's filter; what cannot be read passes none, and is said so."""
    assert group.filter is not None
    try:
        return group.filter.rows(view)
    except Exception as error:
        log.error(
            "a batch cannot be filtered, none of it passes",
            topic=group.topic,
            group=group.name,
            sequence=view.base_sequence,
            reason=reason_of(error),
        )
        return []
