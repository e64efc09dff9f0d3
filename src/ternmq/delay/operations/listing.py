"""Reads an hour's schedule log: rows by id, or the first pending rows by due time.

Blocks and runs on a thread of its own; a large hour is read through some megabytes at a time and
only what is asked for is kept. What became of the rows is handed in as it was at the beginning. A
record that cannot be read (`batch.readability`) is listed with what of it can be; it holds up
nothing.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ternmq.batch.layout import Column, ColumnPart
from ternmq.batch.readability import properties_to_send, read_or, why_unreadable
from ternmq.batch.view import BatchView
from ternmq.core.units import MIB
from ternmq.delay.hours.decision_book import INTENDED, STATE
from ternmq.delay.hours.hour_index import HourIndex, IndexedRows, times_of
from ternmq.delay.store.store import DelayStore
from ternmq.wire.messages.delays import DelayedContent, DelayRow

BODY_SIZE_MAX = MIB


class ListedRow(NamedTuple):
    """One row of an hour, by the schedule log."""

    row: int
    due_ms: int
    topic_id: int
    app: str = ""
    """Which application sent it; empty: nobody can tell."""


class Searched(NamedTuple):
    """The rows with an id."""

    rows: list[ListedRow]
    damaged: int
    """Bytes that cannot be read: there may be more rows in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """An hour as it was when the question came."""

    start: int
    length: int
    states: np.ndarray
    moves: dict[int, tuple[int, int]]


NOTHING_SEEN = (-1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingFilter:
    """Which rows to list."""

    topic_id: int = 0
    key: str = ""
    from_ms: int = 0
    to_ms: int = 2**62
    after: tuple[int, int] = NOTHING_SEEN
    """(due, row) of the last one that was seen."""
    limit: int = 100
    message_id: bytes = field(default=b"")
    unreadable: bool = False
    """Only rows that cannot go out because their record cannot be read."""


def search(
    store: DelayStore, start: int, length: int, message_ids: Collection[bytes]
) -> dict[bytes, Searched]:
    """The rows that have these ids, whatever became of them, in one reading of the hour."""
    found: dict[bytes, list[ListedRow]] = {id_: [] for id_ in message_ids}
    unread = dict.fromkeys(message_ids, 0)
    at, damaged = 0, 0
    while at < length:
        step = store.derivation.schedule_log.read(start, at, length)
        for entry in step.entries:
            index = HourIndex()
            index.add(entry)
            for wanted in message_ids:
                if not (rows := index.find(wanted)):
                    continue
                place = (entry.offset, entry.size, entry.first_row)
                here = in_records(store, start, [(place, rows)], wanted)
                found[wanted] += here.rows
                unread[wanted] += here.damaged
        at = step.upto
        damaged += step.damaged
    return {id_: Searched(rows, damaged + unread[id_]) for id_, rows in found.items()}


def in_records(
    store: DelayStore,
    start: int,
    places: list[tuple[tuple[int, int, int], list[int]]],
    message_id: bytes,
) -> Searched:
    """Which of some rows of an hour have this id; a place is offset, size and first row. Each
    record is read once, however many messages of one id are in it."""
    found: list[ListedRow] = []
    damaged = 0
    for (offset, size, first_row), rows in places:
        view = store.record(start, offset, size)
        # A row may lie behind the end of its record, where the next one is damaged.
        there = [row for row in rows if row - first_row < view.count]
        ids = readable_ids(view, [row - first_row for row in there])
        if ids is None:
            damaged += size
            continue
        app, due_ms = sender(view), times_of(view)
        found += [
            ListedRow(row, int(due_ms[row - first_row]), view.topic_id, app)
            for row, its_id in zip(there, ids, strict=True)
            if its_id == message_id
        ]
    return Searched(found, damaged)


def sender(view: BatchView) -> str:
    """The application of a record; empty if nobody can tell."""
    try:
        return view.app
    except Exception:
        return ""


def readable_ids(view: BatchView, rows: list[int]) -> list[bytes] | None:
    """The ids of some rows of a record; None if nobody can tell."""
    try:
        return [view.id_bytes(row) for row in rows]
    except Exception:
        return None


def contents(store: DelayStore, hour: Hold, wanted: ListingFilter) -> list[DelayedContent]:
    """The first pending rows with what is in them."""
    return [_content(store, hour, place) for place in _places(store, hour, wanted)]


def _content(store: DelayStore, hour: Hold, place: np.void) -> DelayedContent:
    view = store.record(hour.start, int(place["at"]), int(place["size"]))
    inside = int(place["row"]) - int(place["first"])
    return DelayedContent(
        row=_row(store, hour, place, {}),
        body=read_or(view.body, inside, b"")[:BODY_SIZE_MAX],
        tag=read_or(view.tag, inside, None),
        order_key=read_or(view.order_key, inside, None),
        properties=properties_to_send(view, inside),
        app=read_or(view.origin_app, inside, ""),
    )


def first_rows(store: DelayStore, hour: Hold, wanted: ListingFilter) -> list[tuple[int, DelayRow]]:
    """(row, what it is) of the first pending rows by due time."""
    reasons: dict[int, str] = {}
    return [
        (int(place["row"]), _row(store, hour, place, reasons))
        for place in _places(store, hour, wanted)
    ]


def _places(store: DelayStore, hour: Hold, wanted: ListingFilter) -> np.ndarray:
    """Where the first pending rows are, by due time."""
    best = np.zeros(0, _PLACE)
    at = 0
    while at < hour.length:
        step = store.derivation.schedule_log.read(hour.start, at, hour.length)
        for entry in step.entries:
            best = _best(best, _matching(store, hour, entry, wanted), wanted.limit)
        at = step.upto
    return best


_PLACE = np.dtype(
    [("due", "<i8"), ("row", "<i8"), ("first", "<i8"), ("at", "<i8"), ("size", "<i8")]
)


def _matching(
    store: DelayStore, hour: Hold, entry: IndexedRows, wanted: ListingFilter
) -> np.ndarray:
    """Places of the rows of a record that are asked for."""
    first, count = entry.first_row, entry.row_count
    if wanted.topic_id and entry.topic_id != wanted.topic_id:
        return np.zeros(0, _PLACE)
    rows = np.arange(first, first + count)
    due_ms = entry.due_ms.copy()
    for row, (moved_ms, _) in hour.moves.items():
        if first <= row < first + count:
            due_ms[row - first] = moved_ms
    states = np.zeros(count, np.uint8)
    known = hour.states[first : first + count]
    states[: len(known)] = known & STATE
    keep = (states <= INTENDED) & (due_ms >= wanted.from_ms) & (due_ms < wanted.to_ms)
    keep &= (due_ms > wanted.after[0]) | ((due_ms == wanted.after[0]) & (rows > wanted.after[1]))
    if (wanted.key or wanted.message_id or wanted.unreadable) and bool(keep.any()):
        view = store.record(hour.start, entry.offset, entry.size)
        keep &= not wanted.unreadable or bool(why_unreadable(view))
        for at in np.flatnonzero(keep).tolist():
            keep[at] = _is_it(view, at, wanted)
    places = np.zeros(int(keep.sum()), _PLACE)
    places["due"], places["row"] = due_ms[keep], rows[keep]
    places["first"], places["at"], places["size"] = first, entry.offset, entry.size
    return places


def _is_it(view: BatchView, row: int, wanted: ListingFilter) -> bool:
    if wanted.key and read_or(view.key, row, None) != wanted.key:
        return False
    return not wanted.message_id or read_or(view.id_bytes, row, b"") == wanted.message_id


def _best(kept: np.ndarray, more: np.ndarray, limit: int) -> np.ndarray:
    if not len(more):
        return kept
    both = np.concatenate([kept, more])
    return both[np.lexsort((both["row"], both["due"]))[:limit]]


def _row(store: DelayStore, hour: Hold, place: np.void, reasons: dict[int, str]) -> DelayRow:
    """`reasons`: why records cannot be read, by offset; each is looked at once."""
    row, at = int(place["row"]), int(place["at"])
    view = store.record(hour.start, at, int(place["size"]))
    if at not in reasons:
        reasons[at] = why_unreadable(view)
    inside = row - int(place["first"])
    packed = view.buffer(Column.BODY, ColumnPart.OFFSETS)
    assert packed is not None
    offsets = packed.cast("i")
    state = int(hour.states[row]) & STATE if row < len(hour.states) else 0
    waiting = "unreadable" if reasons[at] else "pending"
    return DelayRow(
        id=read_or(view.id_bytes, inside, b""),
        topic=view.topic,
        key=read_or(view.key, inside, None) or "",
        due_at_ms=int(place["due"]),
        accepted_at_ms=view.stamp.received_at_ms,
        size=offsets[inside + 1] - offsets[inside],
        state="dispatching" if state == INTENDED else waiting,
    )
