"""ROW_STATE, LEASES and WAITING: what single rows are at, who holds what, and what waits why.

Answers come from memory, in slices between turns of the loop (`limits/slices.py`, one for all who
look), and are cut to their page before anything is worked out. Only texts of failures that are not
in memory are read, by a thread, and of those at most `NOTES_READ_MAX`. Never changes anything.
"""

import asyncio
from collections.abc import Iterable
from heapq import nsmallest
from typing import Any

from msgspec.structs import replace

from ternmq.broker.delivery.failure_texts import FailureTexts
from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.failure_notes import Failed, FailureNote
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.groups.lease import Lease
from ternmq.broker.inspection.message_states import (
    LookMoment,
    StateFound,
    lane_name,
    lease_info,
    states_of,
)
from ternmq.broker.inspection.waiting_rows import WaitingPiece, WaitingScan, error_line
from ternmq.broker.limits.slices import Slices
from ternmq.broker.operations.admin import both_lanes
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import BadRequest
from ternmq.wire.inspection.rows import (
    ErrorCount,
    LeaseFind,
    LeaseInfo,
    LeasePage,
    MessageState,
    MessageStateFind,
    MessageStates,
    WaitingFind,
    WaitingPage,
    WaitingRow,
)
from ternmq.wire.record import pack

SEQUENCES_MAX = 100
STATES_MAX = 2_000
"""States in one answer; the other groups come with the next page."""
PAGE_MAX = 1_000
NOTES_READ_MAX = 500
"""Texts of failures that one answer reads from the disk."""
SHARED_MS = 1_000
SHARED_MAX = 64
"""Pages of what waits that are kept for others who ask the same."""
ERRORS_MAX = 100
"""Different errors that are counted apart in one answer."""
NEVER_DUE = -1


class RowInspection:
    """The commands that look into groups."""

    def __init__(
        self, *, groups: ConsumerGroups, topics: TopicNames, failure_texts: FailureTexts
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._failure_texts = failure_texts
        self._lanes_at_once = Slices(10)
        self._slices = Slices()
        self._waiting: dict[bytes, tuple[int, WaitingPage]] = {}
        """Answers of the last second, by request."""
        self._waiting_turn = asyncio.Lock()

    # -- ROW_STATE

    async def states(self, request: MessageStateFind) -> MessageStates:
        sequences = sorted(set(request.sequences))
        if not 0 < len(sequences) <= SEQUENCES_MAX:
            raise BadRequest(f"ask for 1 to {SEQUENCES_MAX} sequences, not {len(sequences)}")
        topic = self._topics.get(request.topic)
        if request.group:
            lanes, following = [self._groups.get(topic.id, topic.name, request.group)], ""
        else:
            lanes, following = self._lanes_after(topic.id, request.after, len(sequences))
        moment = self._moment()
        found = await self._lanes_at_once.make(
            lanes, lambda group: states_of(group, sequences, moment)
        )
        states = await self._with_errors([each for of_group in found for each in of_group])
        return MessageStates(states=states, following=following)

    def _lanes_after(
        self, topic_id: int, after: str, sequences: int
    ) -> tuple[list[ConsumerGroup], str]:
        """A page of a topic's groups by name, and the last name if there are more."""
        room = STATES_MAX // sequences
        names = nsmallest(
            room + 1, (name for name in self._groups.by_topic.get(topic_id, {}) if name > after)
        )
        lanes = [self._groups.by_topic[topic_id][name] for name in names[:room]]
        return lanes, names[room - 1] if len(names) > room else ""

    async def _with_errors(self, found: list[StateFound]) -> list[MessageState]:
        texts = await self._read([each.note for each in found])
        return [
            replace(each.state, **_failure(each.note, texts)) if each.note else each.state
            for each in found
        ]

    # -- LEASES

    async def leases(self, request: LeaseFind) -> LeasePage:
        limit = page_size(request.limit)
        lanes = self._lanes(request.topic, request.group)
        moment = self._moment()
        held = ((key, lane) for lane in lanes for key in lane.lane.leases if key > request.after)
        chosen = nsmallest(limit + 1, held, key=lambda each: each[0])

        def describe(each: tuple[int, ConsumerGroup]) -> LeaseInfo | None:
            lease: Lease | None = each[1].lane.leases.get(each[0])  # It may have ended meanwhile.
            return None if lease is None else lease_info(each[1], lease, moment)

        found = await self._slices.make(chosen[:limit], describe)
        return LeasePage(
            leases=[lease for lease in found if lease is not None],
            total=sum(len(lane.lane.leases) for lane in lanes),
            following=chosen[limit - 1][0] if len(chosen) > limit else 0,
        )

    # -- WAITING

    async def waiting(self, request: WaitingFind) -> WaitingPage:
        """The dearest of these looks: one at a time, and shared by all who ask within a second."""
        page_size(request.limit)
        key = pack(request)
        async with self._waiting_turn:
            now = self._groups.now()
            for old in [k for k, (at, _) in self._waiting.items() if now - at >= SHARED_MS]:
                del self._waiting[old]
            if key not in self._waiting:
                page = await self._scan(request)
                if len(self._waiting) >= SHARED_MAX:
                    return page
                self._waiting[key] = (now, page)
            return self._waiting[key][1]

    async def _scan(self, request: WaitingFind) -> WaitingPage:
        limit = request.limit
        lanes = self._lanes(request.topic, request.group)
        scan = WaitingScan(request.after, limit, errors=request.errors)
        await self._slices.run(scan.steps(lanes))
        unread = sorted(scan.unread.items(), key=lambda item: -item[1])
        texts = await self._read(
            [*(piece.note for piece in scan.page), *(note for note, _ in unread)]
        )
        for note, rows in unread:
            scan.add(error_line(texts.get(note)), rows)
        moment = self._moment()
        return WaitingPage(
            rows=[_waiting_row(lanes[each.lane], each, texts, moment) for each in scan.page],
            total=sum(lane.lane.waiting.count for lane in lanes),
            errors=_most_frequent(scan.counts),
            scanned=scan.rows,
            following=scan.page[-1].cursor if scan.more and scan.page else (-1, -1, -1),
        )

    # -- all of them

    def _lanes(self, topic: str, group: str) -> list[ConsumerGroup]:
        return both_lanes(self._groups, self._topics, self._topics.get(topic), group)

    def _moment(self) -> LookMoment:
        return LookMoment(self._groups.now(), self._groups.now_ms())

    async def _read(self, notes: Iterable[FailureNote | None]) -> dict[FailureNote, Failed]:
        """The first so many."""
        wanted = list(dict.fromkeys(note for note in notes if note is not None))
        return await self._failure_texts.read(wanted[:NOTES_READ_MAX])


def page_size(limit: int) -> int:
    if not 0 < limit <= PAGE_MAX:
        raise BadRequest(f"limit is {limit}; it can be 1 to {PAGE_MAX}")
    return limit


def _waiting_row(
    group: ConsumerGroup, piece: WaitingPiece, texts: dict[FailureNote, Failed], moment: LookMoment
) -> WaitingRow:
    return WaitingRow(
        lane=lane_name(group),
        first=piece.first,
        end=piece.end,
        due_ms=NEVER_DUE if piece.wait.stopped else moment.time_of(piece.due),
        attempt=piece.wait.attempt,
        **_failure(piece.note, texts),
    )


def _failure(note: FailureNote | None, texts: dict[FailureNote, Failed]) -> dict[str, Any]:
    """Why and when rows failed the last time."""
    failed = texts.get(note) if note is not None else None
    at_ms = failed.at_ms if failed is not None else 0
    return {"error": error_line(failed), "failed_at_ms": at_ms}


def _most_frequent(counts: dict[str, int]) -> list[ErrorCount]:
    """The others count as not known."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [ErrorCount(error=error, rows=rows) for error, rows in ranked[:ERRORS_MAX] if error]
    rest = sum(rows for error, rows in ranked[:ERRORS_MAX] if not error)
    rest += sum(rows for _, rows in ranked[ERRORS_MAX:])
    return [*shown, ErrorCount(error="", rows=rest)] if rest else shown
