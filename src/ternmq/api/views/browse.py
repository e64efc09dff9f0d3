"""Messages of a topic page by page, newest or oldest first, filtered, over all broker groups.

Reading leases nothing and disturbs no group. Each broker group is read in pieces from where the
cursor says, and the pieces are put together by the time of storing. A filter may have to pass over
much: after `SCANNED_MAX` messages or `SECONDS_MAX` a page ends, honestly short, and says how far it
came; its cursor goes on from there.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from ternmq.api.cursors import positions_cursor, read_positions
from ternmq.batch.selector.selector import Selector
from ternmq.client.client import Client
from ternmq.client.model.message import Message, MessageBatch
from ternmq.client.transport.fan_out import Missing
from ternmq.core.clock import Clock
from ternmq.core.errors import BadRequest, TernError

Order = Literal["newest", "oldest"]
LIMIT_MAX = 1_000
PIECE_MIN = 100
PIECE_MAX = 5_000
SCANNED_MAX = 50_000
SECONDS_MAX = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowseWanted:
    """Which messages; empty means any."""

    topic: str
    order: Order = "newest"
    start: datetime | None = None
    end: datetime | None = None
    where: str = ""
    """An SQL92 filter, as of a group."""
    key: str = ""
    tag: str = ""
    text: str = ""
    """In the body."""
    limit: int = 50
    cursor: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= LIMIT_MAX:
            raise BadRequest(f"limit is {self.limit}; it can be 1 to {LIMIT_MAX}")
        if self.order not in ("newest", "oldest"):
            raise BadRequest(f"order is {str(self.order)[:40]!r}; it can be newest or oldest")

    @property
    def filtered(self) -> bool:
        return bool(self.where or self.key or self.tag or self.text)


@dataclass(slots=True, kw_only=True)
class MessagePage:
    """What was found."""

    messages: list[Message] = field(default_factory=list)
    next: str = ""
    """Where to go on; empty at the end."""
    scanned: int = 0
    early: bool = False
    """The page ended before it was full: there was too much to pass over."""
    bounds: tuple[int, int] = (0, 0)
    """Messages that the topic keeps: first and end, added up over broker groups."""
    missing: Missing = field(default_factory=dict)


class BrowseSpans(NamedTuple):
    """What a topic has for a page."""

    by_group: dict[str, tuple[int, int]]
    """By broker group: from which sequence to which."""
    bounds: tuple[int, int]
    missing: Missing


class MessageBrowser:
    """Reads pages with one client."""

    def __init__(self, mq: Client, clock: Clock) -> None:
        self._mq = mq
        self._clock = clock

    async def page(self, wanted: BrowseWanted) -> MessagePage:
        spans = await self._spans(wanted)
        takes = _test(wanted)
        by_group = spans.by_group.items()
        lines = [BrowsedGroup(self._mq, wanted, group, *span) for group, span in by_group]
        messages: list[Message] = []
        scanned, early = 0, False
        give_up = self._clock.monotonic() + SECONDS_MAX
        newest = wanted.order == "newest"
        while len(messages) < wanted.limit:
            open_lines = [line for line in lines if await line.ready()]
            if not open_lines:
                break
            best = (max if newest else min)(open_lines, key=lambda line: line.head.stored_at)
            message, passes = best.take()
            scanned += 1
            if passes and takes(message):
                messages.append(message)
            if scanned >= SCANNED_MAX or self._clock.monotonic() > give_up:
                early = len(messages) < wanted.limit
                break
        more = any([await line.ready() for line in lines])
        return MessagePage(
            messages=messages,
            next=positions_cursor({line.group: line.position for line in lines}) if more else "",
            scanned=scanned,
            early=early,
            bounds=spans.bounds,
            missing=spans.missing,
        )

    async def _spans(self, wanted: BrowseWanted) -> BrowseSpans:
        """What there is; a cursor narrows it down."""
        admin = self._mq.admin.tolerant()
        starts = await admin.seek_all(wanted.topic, wanted.start or "earliest")
        ends = {group: sought.end for group, sought in starts.items()}
        if wanted.end is not None:
            stops = await admin.seek_all(wanted.topic, wanted.end)
            ends = {group: sought.sequence for group, sought in stops.items()}
        positions = read_positions(wanted.cursor)
        found: dict[str, tuple[int, int]] = {}
        for group, sought in starts.items():
            first, end = max(sought.sequence, sought.first), ends.get(group, 0)
            if group in positions and wanted.order == "newest":
                end = min(end, positions[group])
            elif group in positions:
                first = max(first, positions[group])
            found[group] = (first, max(first, end))
        kept = (
            sum(sought.first for sought in starts.values()),
            sum(sought.end for sought in starts.values()),
        )
        return BrowseSpans(found, kept, dict(admin.missing))


class BrowsedGroup:
    """One broker group's part, piece by piece in one direction."""

    def __init__(self, mq: Client, wanted: BrowseWanted, group: str, first: int, end: int) -> None:
        self.group = group
        self._mq = mq
        self._wanted = wanted
        self._first, self._end = first, end
        self._size = max(PIECE_MIN, wanted.limit)
        self._selector = Selector.parse(wanted.where) if wanted.where else None
        self._held: list[tuple[Message, bool]] = []
        """The next one is the last of the list."""

    @property
    def head(self) -> Message:
        return self._held[-1][0]

    @property
    def position(self) -> int:
        """Where a cursor goes on: behind (newest first) or at the next message."""
        newest = self._wanted.order == "newest"
        if self._held:
            return self.head.sequence + 1 if newest else self.head.sequence
        return self._end if newest else self._first

    def take(self) -> tuple[Message, bool]:
        return self._held.pop()

    async def ready(self) -> bool:
        """Is there one more? Reads the next piece if need be."""
        while not self._held and self._first < self._end:
            await self._read()
        return bool(self._held)

    async def _read(self) -> None:
        size = self._size
        self._size = min(PIECE_MAX, size * 2)
        if self._wanted.order == "newest":
            first, end = max(self._first, self._end - size), self._end
            self._end = first
        else:
            first, end = self._first, min(self._end, self._first + size)
            self._first = end
        found: list[tuple[Message, bool]] = []
        async for batch in self._batches(first, end):
            found += _judged(batch, self._selector)
        if self._wanted.order == "oldest":
            found.reverse()
        self._held = found

    async def _batches(self, first: int, end: int) -> AsyncIterator[MessageBatch]:
        reader = self._mq.read(self._wanted.topic, start=first, end=end, broker_group=self.group)
        async for batch in reader.batches():
            yield batch


def _judged(batch: MessageBatch, selector: Selector | None) -> list[tuple[Message, bool]]:
    """Each message, and whether the filter takes it."""
    if selector is None:
        return [(message, True) for message in batch]
    found: list[tuple[Message, bool]] = []
    for delivery, first, end in batch.parts:
        try:
            ranges = selector.rows(delivery.batch)
        except TernError:
            ranges = []  # Columns that cannot be read match nothing.
        taken = {row for low, high in ranges for row in range(low, high)}
        found += [(Message(delivery, row), row in taken) for row in range(first, end)]
    return found


def _test(wanted: BrowseWanted) -> Callable[[Message], bool]:
    text = wanted.text.encode()

    def takes(message: Any) -> bool:
        try:
            return (
                (not wanted.key or wanted.key in (message.key, message.order_key))
                and (not wanted.tag or message.tag == wanted.tag)
                and (not text or text in message.body)
            )
        except Exception:  # A message of an old release that cannot be read: see batch.readable.
            return False

    return takes
