"""Open transactions of all brokers: how many messages they hold, and ending one by hand."""

from typing import Literal, Unpack

import msgspec

from ternmq.client.model.arguments import typed_calls
from ternmq.client.transactions.half_sender import HalfWanted, half_id, make_half_find
from ternmq.client.transport.admin_calls import AdminCalls
from ternmq.client.transport.fan_out import named
from ternmq.core.errors import TransactionNotFound
from ternmq.wire.messages.groups import (
    GroupFind,
    HalfLine,
    Ledger,
)
from ternmq.wire.messages.transactions import HalfEnd, HalfEnded, HalfFind, HalfOpens
from ternmq.wire.numbers import Command


@typed_calls
class TransactionAdmin(AdminCalls):
    """Calls about transactions that have not ended."""

    async def half_lines(self, topic: str = "") -> list[HalfLine]:
        """Per topic, how many messages are in transactions that have not ended."""
        find = GroupFind(topic=topic, limit=1)  # They come with the first page.
        answers = await self._fan_out.ask(Command.LEDGER, find, Ledger)
        return [named(name, line) for name, answer in answers.items() for line in answer.halves]

    async def halves(self, **wanted: Unpack[HalfWanted]) -> HalfOpens:
        """Open transactions, by transaction, name, app, dropped_only, limit; of all brokers."""
        find = make_half_find(wanted)
        answers = await self._fan_out.ask(Command.HALF_LIST, find, HalfOpens)
        found = [named(name, one) for name, each in answers.items() for one in each.transactions]
        found.sort(key=lambda one: one.opened_at_ms)
        return HalfOpens(
            transactions=found[: find.limit],
            total=sum(answer.total for answer in answers.values()),
            dropped=sum(answer.dropped for answer in answers.values()),
        )

    async def end_half(self, transaction: str, action: Literal["commit", "rollback"]) -> HalfEnded:
        """Commit or roll back a transaction by hand, by its id, wherever it is."""
        end = HalfEnd(transaction=half_id(transaction), action=action, source="operator")
        groups = await self._fan_out.groups()
        if len(groups) > 1:  # One with order keys may have a part on several.
            opens = await self._fan_out.ask(
                Command.HALF_LIST, HalfFind(transaction=end.transaction, limit=1), HalfOpens
            )
            groups = [group for group, found in opens.items() if found.total]
        if len(groups) > 1:
            answers = await self._fan_out.ask(Command.HALF_END, end, HalfEnded, groups)
            placed = [place for answer in answers.values() for place in answer.placed]
            return msgspec.structs.replace(next(iter(answers.values())), placed=placed)
        return await self._fan_out.first(Command.HALF_END, end, HalfEnded, TransactionNotFound)
