"""Messages that are not due yet: cancel, move, fire, find and count them.

A receipt names its delay server and roughly when its message is due, so one server is asked and
finds the row at once. A bare id may be anywhere: all delay servers are asked, and "unknown" is said
only if every one of them said so. Nothing here is kept: each call is a question to the servers,
whose answers are durable, so repeating a call after a lost connection is safe.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ternmq.client.model.arguments import typed_calls
from ternmq.client.model.due import make_due, time_ms
from ternmq.client.model.receipt import Receipt
from ternmq.client.model.times import shown
from ternmq.client.transport.cluster import Cluster
from ternmq.core.errors import BadRequest, TernError, Unavailable
from ternmq.core.ids import ID_TEXT_SIZE, id_from_text
from ternmq.wire.messages.delays import (
    DelayAction,
    DelayChange,
    DelayChanged,
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
)
from ternmq.wire.messages.hello import Empty
from ternmq.wire.messages.servers import Route, Withdraw
from ternmq.wire.messages.stats import Status, StatusQuery
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, T

PAGE_ROWS = 1_000
AT_ONCE = 50
"""Changes that are under way together."""
FAILED = "failed"

Delayed = Receipt | DelayRow | str | bytes
"""Which delayed message: its receipt, a row of `rows`, or its id."""


class CancelResult(StrEnum):
    """What became of a message that was to be changed."""

    CANCELLED = "cancelled"
    """It will never be handed out. Also said when it had been cancelled before."""
    RESCHEDULED = "rescheduled"
    FIRED = "fired"
    """It goes out now."""
    ALREADY_DISPATCHED = "already_dispatched"
    """Too late: it is in the broker, or certainly on its way there."""
    UNKNOWN = "unknown"
    """No delay server has a message of that id (or it was dispatched long ago)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayPage:
    """Some of the messages that wait, and how to get the next ones."""

    rows: list[DelayRow]
    following: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaysChanged:
    """What became of many messages that were to be changed."""

    counts: Mapping[str, int]
    """By `CancelResult`, or "failed"."""
    failed: list[tuple[Delayed, str]]
    """Those whose server did not answer, and why: ask again."""


@typed_calls
class Delays:
    """`mq.cancel`, `mq.reschedule`, `mq.fire_now` and `mq.admin.delays`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def change(
        self,
        action: DelayAction,
        message: Delayed,
        *,
        at: object = None,
        delay: object = None,
    ) -> CancelResult:
        """Cancel, reschedule or fire one message, by receipt, by id or as it was found."""
        if isinstance(message, Receipt) and message.due_at_ms is None:
            return CancelResult.ALREADY_DISPATCHED  # It went straight to its broker.
        change = _change(action, message, at, delay)
        if isinstance(message, Receipt):
            link = self._cluster.server(message.broker_group, "delay")
            answer = await self._cluster.ask(link, Command.DELAY_CHANGE, change, DelayChanged)
            return CancelResult(answer.result)
        return await self._change_somewhere(change)

    async def _change_somewhere(self, change: DelayChange) -> CancelResult:
        """Ask every server there is: one that started a moment ago may have it."""
        stale: TernError | None = None
        try:
            await self._cluster.refresh()
        except Unavailable as error:
            stale = error  # Who has the message may still answer.
        groups = await self._cluster.some_masters("delay")
        answers = await self._ask(groups, Command.DELAY_CHANGE, change, DelayChanged)
        results = [answer.result for answer in answers if isinstance(answer, DelayChanged)]
        for result in results:
            if result != "unknown":
                return CancelResult(result)
        _raise_silent(groups, answers)
        self._raise_away()
        if stale is not None:
            raise Unavailable(f"there may be other delay servers: {stale.message}")
        return CancelResult.UNKNOWN

    async def rows(
        self,
        *,
        topic: str = "",
        id: str | bytes = b"",
        key: str = "",
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int = 100,
        unreadable: bool = False,
    ) -> list[DelayRow]:
        """Messages that wait, by due time, at most `limit`; `end` is not included. `unreadable`:
        only those that cannot go out because their record cannot be read."""
        if limit < 1:
            raise BadRequest(f"limit is {limit}; it is at least 1")
        find = DelayFind(
            topic=topic,
            id=id_bytes(id) if id else b"",
            key=key,
            from_ms=0 if start is None else time_ms(start),
            to_ms=0 if end is None else time_ms(end),
            unreadable=unreadable,
        )
        found: list[DelayRow] = []
        for group in await self._everybody():
            found += await self._pages(group, find, limit)
        return sorted(found, key=lambda row: (row.due_at_ms, row.id))[:limit]

    async def _pages(self, group: str, find: DelayFind, limit: int) -> list[DelayRow]:
        link = self._cluster.server(group, "delay")
        found: list[DelayRow] = []
        after = b""
        while len(found) < limit:
            page = DelayFind(
                topic=find.topic,
                id=find.id,
                key=find.key,
                from_ms=find.from_ms,
                to_ms=find.to_ms,
                after=after,
                limit=min(PAGE_ROWS, limit - len(found)),
                unreadable=find.unreadable,
            )
            answer = await self._cluster.ask(link, Command.DELAY_FIND, page, DelayRows)
            found += answer.rows
            after = answer.next
            if not after:
                break
        return found

    async def page(
        self,
        *,
        topic: str = "",
        key: str = "",
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int = 100,
        after: str = "",
    ) -> DelayPage:
        """A page of what waits, and in `following` what the next page wants as `after`; empty at
        the end. Of several delay servers one after the other, each by due time."""
        server, _, cursor = after.rpartition(":")
        left = sorted(name for name in await self._everybody() if name >= server)
        rows: list[DelayRow] = []
        while left and len(rows) < limit:
            find = DelayFind(
                topic=topic,
                key=key,
                from_ms=0 if start is None else time_ms(start),
                to_ms=0 if end is None else time_ms(end),
                after=cursor_bytes(cursor) if left[0] == server else b"",
                limit=min(PAGE_ROWS, limit - len(rows)),
            )
            link = self._cluster.server(left[0], "delay")
            answer = await self._cluster.ask(link, Command.DELAY_FIND, find, DelayRows)
            rows += answer.rows
            server, cursor = left[0], answer.next.hex()
            if not cursor:
                left = left[1:]
        return DelayPage(rows=rows, following=_following(left, server, cursor))

    async def show(self, message: Delayed) -> list[DelayedContent]:
        """A message that waits, with body, tag and properties; none: no delay server has it."""
        change = _change("cancel", message, None, None)  # Only for the place that it names.
        wanted = DelayShow(id=change.id, topic=change.topic, due_at_ms=change.due_at_ms)
        answers = await self._ask_all(Command.DELAY_SHOW, wanted, DelayContents)
        return [content for answer in answers for content in answer.messages]

    async def change_many(
        self,
        action: DelayAction,
        messages: Sequence[Delayed],
        *,
        at: object = None,
        delay: object = None,
        on_progress: Callable[[Mapping[str, int]], None] = lambda _: None,
    ) -> DelaysChanged:
        """Cancel, reschedule or fire many, and count how many came to which result, told after
        every step, too. What could not be done is named with the reason; may be repeated."""
        counts: dict[str, int] = {}
        failed: list[tuple[Delayed, str]] = []

        async def one(message: Delayed) -> str:
            try:
                return str(await self.change(action, message, at=at, delay=delay))
            except Unavailable as error:
                failed.append((message, error.message))
                return FAILED

        for first in range(0, len(messages), AT_ONCE):
            results = await asyncio.gather(*map(one, messages[first : first + AT_ONCE]))
            for result in results:
                counts[result] = counts.get(result, 0) + 1
            on_progress(dict(counts))
        return DelaysChanged(counts=counts, failed=failed)

    async def counts(
        self, topic: str = "", start: datetime | None = None, end: datetime | None = None
    ) -> DelayCounts:
        """How many messages wait for each hour (or what `delay_hour_ms` is on the servers)."""
        query = DelayCountQuery(
            topic=topic,
            from_ms=0 if start is None else time_ms(start),
            to_ms=0 if end is None else time_ms(end),
        )
        answers = await self._ask_all(Command.DELAY_COUNT, query, DelayCounts)
        hour_ms = max(answer.hour_ms for answer in answers)  # The coarsest says what can be added.
        totals: dict[int, int] = {}
        for answer in answers:
            for at_ms, pending in answer.hours:
                hour = at_ms - at_ms % hour_ms
                totals[hour] = totals.get(hour, 0) + pending
        return DelayCounts(hours=sorted(totals.items()), hour_ms=hour_ms)

    async def ledger(self, topic: str = "") -> list[DelayLedgerLine]:
        """What became of every delayed message; one line for each topic, all servers together."""
        query = DelayLedgerQuery(topic=topic)
        answers = await self._ask_all(Command.DELAY_LEDGER, query, DelayLedger)
        totals: dict[str, list[int]] = {}
        for line in (line for answer in answers for line in answer.lines):
            numbers = (line.accepted, line.pending, line.dispatched, line.cancelled)
            held = totals.setdefault(line.topic, [0, 0, 0, 0])
            totals[line.topic] = [one + other for one, other in zip(held, numbers, strict=True)]
        return [
            DelayLedgerLine(topic=name, accepted=a, pending=p, dispatched=d, cancelled=c)
            for name, (a, p, d, c) in sorted(totals.items())
        ]

    async def status(self) -> list[Status]:
        """What every delay server says about itself."""
        return await self._ask_all(Command.STATUS, StatusQuery(), Status)

    async def forget(self, name: str) -> None:
        """Let meta forget a delay server that is gone for good; one that runs is not forgotten."""
        route = Route(broker_group=name, address="", kind="delay")
        await self._cluster.ask_meta(Command.WITHDRAW, Withdraw(route=route, for_good=True), Empty)

    async def _everybody(self) -> list[str]:
        """All delay servers there are now; raises if one is missing."""
        await self._cluster.refresh()
        self._raise_away()
        return await self._cluster.some_masters("delay")

    def _raise_away(self) -> None:
        for group in self._cluster.away("delay"):
            raise Unavailable(
                f"delay server {group!r} is not running, and it holds messages: start it again, "
                f"or `tern delay forget {group}` if it is gone for good"
            )

    async def _ask_all(self, command: Command, record: Record, answer: type[T]) -> list[T]:
        groups = await self._everybody()
        answers = await self._ask(groups, command, record, answer)
        _raise_silent(groups, answers)
        return [each for each in answers if isinstance(each, answer)]

    async def _ask(
        self, groups: Sequence[str], command: Command, record: Record, answer: type[T]
    ) -> "list[T | TernError]":
        """What each server answered, or why it did not."""

        async def ask(group: str) -> "T | TernError":
            link = self._cluster.server(group, "delay")
            try:
                return await self._cluster.ask(link, command, record, answer)
            except TernError as error:
                return error

        return await asyncio.gather(*(ask(group) for group in groups))


def cursor_bytes(cursor: str) -> bytes:
    try:
        return bytes.fromhex(cursor)
    except ValueError:
        raise BadRequest("this is not the `following` of a page") from None


def _following(left: Sequence[str], server: str, cursor: str) -> str:
    """Where the next page begins: in the middle of a server, or with the next one."""
    if not left:
        return ""
    return f"{server}:{cursor}" if left[0] == server else f"{left[0]}:"


def id_bytes(message_id: str | bytes) -> bytes:
    """The id as the servers know it: 16 bytes for ours, whatever an explicit one had."""
    if isinstance(message_id, bytes):
        return message_id
    if not isinstance(message_id, str):
        raise BadRequest(f"{shown(message_id)} is neither a receipt nor a message id")
    if len(message_id) == ID_TEXT_SIZE:
        return id_from_text(message_id).to_bytes(16, "big")
    try:
        return bytes.fromhex(message_id)
    except ValueError:
        raise BadRequest(f"{shown(message_id)} is not a message id: it has 26 characters") from None


def _change(action: DelayAction, message: Delayed, at: object, delay: object) -> DelayChange:
    at_ms, after_ms = 0, -1
    due = make_due(delay, at)
    if action == "reschedule":
        if due is None:
            raise BadRequest("reschedule to when? give at= (a time) or delay= (from now)")
        # Before 1970 is as long past as its first millisecond; 0 would mean that no time is given.
        at_ms, after_ms = (0, due.ms) if due.relative else (max(1, due.ms), -1)
    if not isinstance(message, Receipt | DelayRow):
        return DelayChange(action=action, id=id_bytes(message), at_ms=at_ms, after_ms=after_ms)
    if message.due_at_ms is None:
        raise BadRequest("this message was not sent for later (delay=, at=): it is with the broker")
    return DelayChange(
        action=action,
        id=message.id_bytes if isinstance(message, Receipt) else message.id,
        topic=message.topic,
        due_at_ms=message.due_at_ms,
        at_ms=at_ms,
        after_ms=after_ms,
    )


def _raise_silent(groups: Sequence[str], answers: "Sequence[Record | TernError]") -> None:
    """Not knowing is not the same as there being none."""
    for group, answer in zip(groups, answers, strict=True):
        if isinstance(answer, Unavailable):
            raise Unavailable(f"delay server {group!r} does not answer: {answer.message}")
        if isinstance(answer, TernError):
            raise answer
