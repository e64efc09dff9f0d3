"""`mq.transaction()`: messages that become visible together, when the block has ended well.

    async with mq.transaction() as tx:
        await tx.send("order.paid", b"...")      # stored, seen by nobody
        await database.commit()                  # the application's own work
                                                 # here everything becomes visible

An exception leaves the outcome UNKNOWN: the work may have been done. The broker then asks the
application's checker (`client.transactions.checker`). Only `tx.rollback()` or `raise
ternmq.Rollback` rolls back. A transaction lives on one broker group, and its end is all or nothing
there. Messages with order keys lie where their keys do: such a transaction may have a part on
several groups. Each part ends by itself, and the checker is asked about one that was not told.
"""

import secrets
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, TypedDict, Unpack

from ternmq.batch.half import ID_SIZE, HalfInfo
from ternmq.client.model.arguments import check_typed_options
from ternmq.client.model.durations import seconds_of
from ternmq.client.model.half_receipt import HalfReceipt, HalfReceipts
from ternmq.client.model.outgoing import SendOptions, listed_bodies
from ternmq.client.model.times import shown
from ternmq.client.tracing import TRACING, traced_list
from ternmq.client.transactions.half_sender import HalfRows, HalfSender, HalfTarget
from ternmq.core.errors import (
    BadRequest,
    SendUnknown,
    TernError,
    TopicNotFound,
    TransactionNotFound,
)
from ternmq.core.units import DAY_MS
from ternmq.wire.messages.transactions import HalfAction, HalfEnd

TransactionState = Literal["open", "committed", "rolled_back", "unknown"]
CHECKS_MAX = 1_000
DURATIONS = ("first_check", "check_interval")


class Rollback(Exception):
    """Raise it in the block of a transaction: it is rolled back, and the block ends quietly."""


class TransactionOptions(TypedDict, total=False):
    """The keywords of `transaction`, for type checkers."""

    first_check: float | timedelta | None
    check_interval: float | timedelta | None
    checks_max: int | None
    broker_group: str | None


def make_info(options: TransactionOptions) -> HalfInfo:
    """A new transaction with these wishes, checked."""
    check_typed_options("transaction", options, TransactionOptions, DURATIONS)
    checks_max = options.get("checks_max") or 0
    if isinstance(checks_max, bool) or not isinstance(checks_max, int):
        raise BadRequest(f"checks_max is {shown(checks_max)}; it is a whole number")
    if not 0 <= checks_max <= CHECKS_MAX:
        raise BadRequest(f"checks_max is {checks_max}; it can be 1 to {CHECKS_MAX}")
    return HalfInfo(
        transaction=secrets.token_bytes(ID_SIZE),
        first_check_ms=duration_ms("first_check", options.get("first_check")),
        check_interval_ms=duration_ms("check_interval", options.get("check_interval")),
        checks_max=checks_max,
    )


def duration_ms(name: str, value: float | timedelta | None) -> int:
    """Seconds as milliseconds; 0 for None."""
    if value is None:
        return 0
    return max(1, int(seconds_of(name, value, 0.001, 30 * DAY_MS / 1000) * 1000))


class Transaction:
    """One transaction; use it in `async with`."""

    def __init__(self, sender: HalfSender, options: TransactionOptions) -> None:
        self._sender = sender
        self._info = make_info(options)
        self._wanted = options.get("broker_group")
        self._group = ""
        self._touched: dict[str, None] = {}
        """Every group that may have a part, in order."""
        self._failed = ""
        self.state: TransactionState = "open"
        self.receipts: HalfReceipts = HalfReceipts()
        """One per message, in the order sent; after the commit they know their sequences."""

    @property
    def id(self) -> str:
        """What the checker and `tern half` call it."""
        return self._info.transaction.hex()

    async def __aenter__(self) -> "Transaction":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if isinstance(error, Rollback):
            if self.state != "rolled_back":
                await self.rollback()  # Raises when it is committed: nobody shall think otherwise.
            return True
        if self.state == "open" and error is None:
            await self.commit()
        elif self.state == "open":
            self.state = "unknown"  # The work may be done: the checker knows, we do not.
        return False

    async def send(
        self,
        topic: str,
        body: Any,
        *,
        immunity: float | timedelta | None = None,
        **options: Unpack[SendOptions],
    ) -> HalfReceipt:
        """Store one message that nobody sees before the commit; options as for `mq.send`.

        `immunity`: seconds during which the broker does not ask about the transaction.
        """
        return (await self.send_many(topic, [body], immunity=immunity, **options))[0]

    async def send_many(
        self,
        topic: str,
        bodies: Sequence[Any],
        *,
        immunity: float | timedelta | None = None,
        **options: Unpack[SendOptions],
    ) -> HalfReceipts:
        """Send many messages in this transaction; `bodies` are bodies or `Outgoing`."""
        if self.state != "open":
            raise BadRequest(f"this transaction is {self.state.replace('_', ' ')}; begin another")
        info = self._info
        if immunity is not None:
            first_check_ms = duration_ms("immunity", immunity)
            info = HalfInfo(
                transaction=info.transaction,
                first_check_ms=first_check_ms,
                check_interval_ms=info.check_interval_ms,
                checks_max=info.checks_max,
            )
        with traced_list(topic, listed_bodies(bodies), options) as traced:
            return await self._stage(topic, self._sender.rows(traced, options), info)

    async def _stage(self, topic: str, rows: HalfRows, info: HalfInfo) -> HalfReceipts:
        if not rows:
            return HalfReceipts()
        if not self._group:
            found = await self._sender.group(self._wanted)
            self._group = self._group or found  # Two that send at once stay on one group.
        try:
            target = HalfTarget(self._group, topic, info)
            receipts = await self._sender.spread(target, rows, self._touched)
        except BaseException as error:
            definite = isinstance(error, TernError) and not isinstance(error, SendUnknown)
            if not definite or len(rows) > 1:  # Stored or not, or in parts: nobody knows.
                self._failed = topic
            raise
        self.receipts.extend(receipts)
        return receipts

    async def commit(self) -> None:
        """Make everything visible now; the block's end does it by itself."""
        if self._failed and self.state == "open":
            self.state = "unknown"
            raise BadRequest(
                f"a message to {self._failed!r} could not be stored, so this transaction cannot be "
                "committed as a whole: roll it back, or leave it to the checker"
            )
        await self._end_traced("commit")

    async def rollback(self) -> None:
        """Forget everything; the block then ends without a commit."""
        await self._end_traced("rollback")

    async def _end_traced(self, action: HalfAction) -> None:
        if TRACING.tracer is None:
            await self._end(action)
            return
        with TRACING.tracer.ending(action, len(self.receipts)):
            await self._end(action)

    async def _end(self, action: HalfAction) -> None:
        if self.state not in ("open", "unknown"):
            raise BadRequest(f"this transaction is {self.state.replace('_', ' ')} already")
        end = HalfEnd(transaction=self._info.transaction, action=action)
        nowhere: TransactionNotFound | None = None
        for group in self._touched:
            self.state = "unknown"
            try:
                answer = await self._sender.end(group, end)
                self.receipts.fill_in(answer.placed)
            except TransactionNotFound as error:
                if group in self.receipts.groups():
                    raise
                nowhere = error  # What was sent there was refused.
        if nowhere is not None and not self.receipts:
            raise nowhere
        self.state = "committed" if action == "commit" else "rolled_back"
        gone = self.receipts.unplaced() if action == "commit" else {}
        if gone:
            topics = ", ".join(repr(topic) for topic in sorted(gone))
            raise TopicNotFound(
                f"the transaction is committed, but {sum(gone.values())} of its "
                f"{len(self.receipts)} message(s) are gone: topic {topics} was deleted after they "
                "were stored, and what belongs to it went with it",
                state="committed",
                gone=gone,
            )
