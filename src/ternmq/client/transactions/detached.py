"""Detached transactions: rows are staged here and committed by name, maybe by another process.

For writers like Spark's: tasks stage rows under (name, attempt), a driver that knows which attempts
won commits them, once, however often it asks. Nobody is asked about a detached transaction; one
that is not committed is rolled back when it expires. A higher attempt shuts out the lower ones of
its name; with `fenced=False` they stand side by side, and the commit says which count. Each broker
group has its own part of it: name the group, and commit on each group used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict, Unpack

import msgspec

from ternmq.batch.encoder import Columns
from ternmq.batch.half import NAME_SIZE_MAX, HalfInfo
from ternmq.client.model.arguments import check_typed_options, check_value
from ternmq.client.model.half_receipt import HalfReceipt, HalfReceipts
from ternmq.client.model.outgoing import SendOptions, listed_bodies
from ternmq.client.model.times import shown
from ternmq.client.tracing import traced_list
from ternmq.client.transactions.half_sender import HalfRows, HalfSender
from ternmq.client.transactions.transaction import duration_ms
from ternmq.core.errors import BadRequest
from ternmq.wire.messages.transactions import DetachedAction, DetachedEnd, HalfEnded, HalfPlace
from ternmq.wire.numbers import Command


class DetachedOptions(TypedDict, total=False):
    """The keywords of `detached`, for type checkers."""

    attempt: int
    expires: float | timedelta | None
    broker_group: str | None
    fenced: bool


class EndOptions(TypedDict, total=False):
    """The keywords of `commit_detached` and `abort_detached`, for type checkers."""

    fenced: bool
    elsewhere: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRows:
    """Columns that are safe and not yet visible."""

    rows: int
    """0 where the name is committed already: then there was nothing to do."""
    committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachedEnding:
    """How a detached transaction stands after a commit or an abort."""

    state: str
    """'committed' or 'rolled_back'; 'open' where somebody only looked."""
    attempts: list[int]
    """Those that are committed."""
    placed: list[HalfPlace]
    """Where committed messages are: topic, sequence, count."""
    repeated: bool
    """It had ended so before."""


def check_detached_name(name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name.encode("utf-8", "replace")) <= NAME_SIZE_MAX:
        raise BadRequest(f"{shown(name)} cannot name a transaction: 1 to {NAME_SIZE_MAX} bytes")
    return name


def _check_attempt(attempt: object) -> int:
    if isinstance(attempt, bool) or not isinstance(attempt, int) or not 0 <= attempt < 2**32:
        raise BadRequest(f"attempt is {shown(attempt)}; it is a whole number, 0 or more")
    return attempt


class Detached:
    """One attempt; made by `mq.detached`."""

    def __init__(self, sender: HalfSender, name: str, options: DetachedOptions) -> None:
        check_typed_options("detached", options, DetachedOptions, ("attempt", "expires"))
        self._sender = sender
        self._info = HalfInfo(
            name=check_detached_name(name),
            attempt=_check_attempt(options.get("attempt", 0)),
            expires_ms=duration_ms("expires", options.get("expires")),
            fenced=bool(options.get("fenced", True)),
        )
        self._wanted = options.get("broker_group")
        self.name: str = name
        self.attempt: int = self._info.attempt
        self.rows: int = 0
        """Staged by this object."""
        self.broker_group: str = self._wanted or ""

    async def send(self, topic: str, body: Any, **options: Unpack[SendOptions]) -> HalfReceipt:
        """Stage one message; options as for `mq.send`."""
        return (await self.send_many(topic, [body], **options))[0]

    async def send_many(
        self, topic: str, bodies: Sequence[Any], **options: Unpack[SendOptions]
    ) -> HalfReceipts:
        """Stage many; returns when they are safe. Raises `Fenced` when a later attempt began."""
        with traced_list(topic, listed_bodies(bodies), options) as traced:
            return await self._stage(topic, self._sender.rows(traced, options))

    async def _stage(self, topic: str, rows: HalfRows) -> HalfReceipts:
        if not rows:
            return HalfReceipts()
        await self._find_group()
        receipts = await self._sender.store(self.broker_group, topic, rows, self._info)
        self.rows += len(receipts)
        return receipts

    async def _find_group(self) -> None:
        if not self.broker_group:
            self.broker_group = await self._sender.group_of(self.name)
        elif self._wanted:
            await self._sender.known(self._wanted)
            self._wanted = None  # Asked once.

    async def send_columns(self, topic: str, columns: Columns, *, later: str = "") -> StagedRows:
        """Stage one batch of columns; several calls may be under way, and keep their order.

        Rows with due times (a DUE column) need `later`: the delay server that takes them after the
        commit and keeps them until then.
        """
        check_value("columns", columns, Columns)
        check_value("later", later, str)
        await self._find_group()
        info = msgspec.structs.replace(self._info, later=later) if later else self._info
        stored = await self._sender.store_columns(self.broker_group, topic, columns, info)
        rows = 0 if stored.committed else columns.count
        self.rows += rows
        return StagedRows(rows=rows, committed=stored.committed)


async def end_detached(
    sender: HalfSender,
    name: str,
    attempts: Sequence[int],
    action: DetachedAction,
    group: str | None,
    options: EndOptions,
) -> DetachedEnding:
    """Commit or abort by name, or look how it stands; asking again is harmless."""
    check_value("attempts", attempts, Sequence[Any])
    check_value("broker_group", group, str | None)
    check_typed_options("commit_detached", options, EndOptions)
    end = DetachedEnd(
        name=check_detached_name(name),
        attempts=[_check_attempt(attempt) for attempt in attempts],
        action=action,
        fenced=bool(options.get("fenced", True)),
        elsewhere=[_check_attempt(attempt) for attempt in options.get("elsewhere", ())],
    )
    where = await sender.known(group) if group else await sender.group_of(name)
    answer = await sender.ask(where, Command.DETACHED_END, end, HalfEnded)
    return DetachedEnding(
        state=answer.state,
        attempts=answer.attempts,
        placed=answer.placed,
        repeated=answer.repeated,
    )
