"""DELAY_FIND, DELAY_SHOW, DELAY_COUNT, DELAY_LEDGER: finds messages by id, lists and counts them.

Everything that was safe when the question came is in the answer. A hint where a row lies is looked
at first; a wrong one costs time and never changes the answer. Pages of a listing go hour by hour,
by due time within an hour.
"""

import asyncio
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ternmq.core.errors import BadRequest, Corrupt, NotMaster, TernError
from ternmq.delay.hours.decision_book import CANCELLED, DISPATCHED, PENDING, STATE
from ternmq.delay.hours.hour import Hour
from ternmq.delay.operations.listing import (
    NOTHING_SEEN,
    Hold,
    ListedRow,
    ListingFilter,
    Searched,
    contents,
    first_rows,
    in_records,
    search,
)
from ternmq.delay.timing.engine import Engine
from ternmq.delay.timing.scheduler import Scheduler
from ternmq.wire.messages.delays import (
    DelayContents,
    DelayCountQuery,
    DelayCounts,
    DelayedContent,
    DelayFind,
    DelayLedger,
    DelayLedgerLine,
    DelayLedgerQuery,
    DelayRow,
    DelayRows,
    DelayShow,
    DelayState,
)

LIMIT_MAX = 1000
SHOWN_MAX = 4
"""Messages of one id that are shown with their bodies: an answer has to fit into a frame."""
_CURSOR = struct.Struct("<qqq")  # hour, due, row
STATES: dict[int, DelayState] = {
    PENDING: "pending",
    DISPATCHED: "dispatched",
    CANCELLED: "cancelled",
}
T = TypeVar("T")


class FoundRow(NamedTuple):
    hour: Hour
    row: ListedRow


class GatheredIds(NamedTuple):
    """Ids that are looked for with the next reading of an hour."""

    ids: set[bytes]
    searching: "asyncio.Task[dict[bytes, Searched]]"


class DelayFinder:
    """The DELAY_FIND, DELAY_COUNT and DELAY_LEDGER commands; never changes anything."""

    def __init__(self, engine: Engine, scheduler: Scheduler) -> None:
        self._engine = engine
        self._scheduler = scheduler
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tern-delay-find")
        self._closed = False
        self._reading = asyncio.Lock()
        self._gathered: dict[int, GatheredIds] = {}
        """By hour."""

    # By id

    async def by_id(self, message_id: bytes, topic: str, hint_ms: int) -> AsyncIterator[FoundRow]:
        """All rows with this id, those of the hinted hour first."""
        if not message_id:
            raise BadRequest("which message? its id is missing")
        await self._scheduler.scheduled()
        hour_ms = self._engine.hour_ms
        near = hint_ms - hint_ms % hour_ms

        def distance(start: int) -> tuple[bool, int]:
            return (abs(start - near) > hour_ms, start)

        damaged, found = 0, False
        for start in sorted(self._engine.hours, key=distance):
            hour = self._engine.hours.get(start)
            if hour is None:
                continue
            here = await self._in_hour(hour, message_id)
            damaged += here.damaged
            for row in here.rows:
                if not topic or self._engine.store.names.get(row.topic_id) == topic:
                    found = True
                    yield FoundRow(hour, row)
        if damaged and not found:
            raise Corrupt(
                f"it is not in what can be read, but {damaged} bytes of the schedule logs cannot "
                "be; the delay server's log names them"
            )

    async def _in_hour(self, hour: Hour, message_id: bytes) -> Searched:
        index = hour.index
        if index is None or not hour.loaded:
            gathered = self._gathered.get(hour.start)
            if gathered is None:
                ids: set[bytes] = set()
                searching = asyncio.get_running_loop().create_task(self._search(hour, ids))
                gathered = self._gathered[hour.start] = GatheredIds(ids, searching)
            gathered.ids.add(message_id)
            searched = await asyncio.shield(gathered.searching)
            return searched.get(message_id, Searched([], 0))
        rows = np.sort(np.array(index.find(message_id), np.uint32))
        records, begins = np.unique(index.records_of(rows), return_index=True)
        places = (
            [
                (index.place(int(record)), part.tolist())
                for record, part in zip(records, np.split(rows, begins[1:]), strict=True)
            ]
            if len(rows)
            else []
        )
        found = await self._on_thread(
            in_records, self._engine.store, hour.start, places, message_id
        )
        return Searched(found.rows, found.damaged + hour.damaged)

    async def _search(self, hour: Hour, ids: set[bytes]) -> dict[bytes, Searched]:
        """One reading at a time. Who asks while another hour, or this one, is read waits for the
        next reading together with all others: a crowd of questions costs as much as one."""
        nothing: dict[bytes, Searched] = {}
        async with self._reading:
            del self._gathered[hour.start]
            where = self._engine.store, hour.start, hour.length
            return await self._of_hour(hour, nothing, search, *where, frozenset(ids))

    async def _whatever_became(self, query: DelayFind) -> DelayRows:
        """The messages of one id, also those that were decided about."""
        found: list[DelayRow] = []
        holds: dict[int, Hold] = {}
        async for hour, row in self.by_id(query.id, query.topic, query.from_ms):
            if len(found) >= LIMIT_MAX:
                break
            if hour.start not in holds:
                holds[hour.start] = await self._hold(hour)
            hold = holds[hour.start]
            state = int(hold.states[row.row]) & STATE if row.row < len(hold.states) else PENDING
            moved = hold.moves.get(row.row)
            found.append(
                DelayRow(
                    id=query.id,
                    topic=self._engine.store.names.get(row.topic_id, ""),
                    key="",
                    due_at_ms=row.due_ms if moved is None else moved[0],
                    accepted_at_ms=0,
                    size=0,
                    state=STATES.get(state, "dispatching"),
                )
            )
        return DelayRows(rows=found)

    async def show(self, query: DelayShow) -> DelayContents:
        """The messages of one id that wait, with what is in them."""
        found: list[DelayedContent] = []
        seen: set[int] = set()
        async for hour, _ in self.by_id(query.id, query.topic, query.due_at_ms):
            if len(found) >= SHOWN_MAX:
                break
            if hour.start in seen:
                continue
            seen.add(hour.start)
            wanted = ListingFilter(
                topic_id=self._topic_id(query.topic),
                message_id=query.id,
                limit=SHOWN_MAX - len(found),
            )
            hold = await self._hold(hour)
            nothing: list[DelayedContent] = []
            found += await self._of_hour(hour, nothing, contents, self._engine.store, hold, wanted)
        return DelayContents(messages=found)

    # Lists

    async def find(self, query: DelayFind) -> DelayRows:
        """One page of what is not dispatched."""
        if query.decided:
            return await self._whatever_became(query)
        await self._scheduler.scheduled()
        limit = max(1, min(query.limit, LIMIT_MAX))
        wanted = ListingFilter(
            topic_id=self._topic_id(query.topic),
            key=query.key,
            message_id=query.id,
            from_ms=query.from_ms,
            to_ms=query.to_ms or 2**62,
            limit=limit + 1,
            unreadable=query.unreadable,
        )
        if wanted.topic_id < 0:
            return DelayRows(rows=[])
        from_hour, seen = _read_cursor(query.after)
        found: list[tuple[int, int, DelayRow]] = []
        for start in sorted(self._engine.hours):
            hour = self._engine.hours.get(start)
            if hour is None or start < from_hour or not self._overlaps(hour, wanted):
                continue
            after = seen if start == from_hour else NOTHING_SEEN
            part = replace(wanted, after=after, limit=limit + 1 - len(found))
            hold = await self._hold(hour)
            nothing: list[tuple[int, DelayRow]] = []
            rows = await self._of_hour(hour, nothing, first_rows, self._engine.store, hold, part)
            found += [(start, row, what) for row, what in rows]
            if len(found) > limit:
                break
        page = found[:limit]
        more = b""
        if len(found) > limit:
            start, row, what = page[-1]
            more = _CURSOR.pack(start, what.due_at_ms, row)
        return DelayRows(rows=[what for _, _, what in page], next=more)

    def _overlaps(self, hour: Hour, wanted: ListingFilter) -> bool:
        if hour.pending <= 0:
            return False
        inside = hour.start < wanted.to_ms and wanted.from_ms < hour.start + self._engine.hour_ms
        return inside or bool(hour.moves) or hour.next_due < hour.start

    async def _hold(self, hour: Hour) -> Hold:
        book = hour.book
        if book is None:
            book = await self._on_thread(self._engine.leading.read_book, hour.start, hour.rows)
        return Hold(
            start=hour.start, length=hour.length, states=book.states.copy(), moves=dict(book.moves)
        )

    # Counts

    async def count(self, query: DelayCountQuery) -> DelayCounts:
        """Pending messages by the hour they are due in."""
        await self._scheduler.scheduled()
        topic_id = self._topic_id(query.topic)
        hour_ms, to_ms = self._engine.hour_ms, query.to_ms or 2**62
        counts: Counter[int] = Counter()
        for hour in self._engine.hours.values():
            here = hour.pending_of(topic_id) if topic_id else hour.pending
            for due_ms, moved_topic in hour.moves.values():
                if topic_id in (0, moved_topic):
                    here -= 1
                    counts[due_ms - due_ms % hour_ms] += 1
            counts[hour.start] += here
        hours = [
            (start, pending)
            for start, pending in sorted(counts.items())
            if pending > 0 and start < to_ms and start + hour_ms > query.from_ms
        ]
        return DelayCounts(hours=hours, hour_ms=hour_ms)

    async def ledger(self, query: DelayLedgerQuery) -> DelayLedger:
        """One line for each topic that ever had delayed messages."""
        lines = [
            DelayLedgerLine(
                topic=self._engine.store.names.get(topic_id, f"%{topic_id}"), **line._asdict()
            )
            for topic_id, line in self._engine.ledger().items()
        ]
        wanted = [line for line in lines if query.topic in ("", line.topic)]
        return DelayLedger(lines=sorted(wanted, key=lambda line: line.topic))

    def _topic_id(self, name: str) -> int:
        """0 for any, -1 for one that never had delayed messages."""
        if not name:
            return 0
        # A name that was deleted and made again is the newer topic.
        return max(
            (key for key, known in self._engine.store.names.items() if known == name), default=-1
        )

    async def _of_hour(self, hour: Hour, nothing: T, job: Callable[..., T], *arguments: Any) -> T:
        """What a job finds in an hour's files; `nothing` if it was cleaned up meanwhile."""
        try:
            return await self._on_thread(job, *arguments)
        except TernError:
            if self._engine.hours.get(hour.start) is hour:
                raise
            return nothing

    async def _on_thread(self, job: Callable[..., T], *arguments: Any) -> T:
        if self._closed:
            raise NotMaster("this server no longer leads; ask for routes again")
        return await asyncio.get_running_loop().run_in_executor(self._pool, job, *arguments)

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=True)


def _read_cursor(cursor: bytes) -> tuple[int, tuple[int, int]]:
    """Where a page goes on: in which hour, after which due time and row."""
    if not cursor:
        return 0, NOTHING_SEEN
    if len(cursor) != _CURSOR.size:
        raise BadRequest("this is not the `next` of a page")
    hour, due_ms, row = _CURSOR.unpack(cursor)
    return hour, (due_ms, row)
