"""Writes batches to a message log by group commit, for brokers and delay servers alike.

A round of messages waits until the one before counts, so that sequences have no gaps, and becomes
visible (`MessageLog.commit`) when it counts. Who is answered, and how, is up to the server: an item
is whatever it puts in, with an `Append` in it.
"""

from collections.abc import Callable
from typing import TypeVar

from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.replication.group_commit import ListTarget, Offer, Offered, Written
from ternmq.storage.log.append import Append, StagedBatches
from ternmq.storage.messages.message_log import MessageLog
from ternmq.wire.messages.replication import MESSAGES

log = get_logger()

Item = TypeVar("Item")


class MessageTarget(ListTarget[Item]):
    """`CommitTarget` of a broker's and of a delay server's message log."""

    number = MESSAGES
    in_turn = True

    def __init__(
        self,
        messages: MessageLog,
        append_of: Callable[[Item], Append],
        on_done: Callable[[list[Item], TernError | None], None],
        *,
        offers_alone: bool,
    ) -> None:
        super().__init__()
        self.offers_alone = offers_alone
        self._messages = messages
        self._append_of = append_of
        self._on_done = on_done

    def heeds(self, refusal: TernError) -> bool:
        return True

    def stage(self, load: list[Item]) -> StagedBatches:
        return self._messages.stage([*map(self._append_of, load)])

    def offered(self, staged: StagedBatches) -> Offered:
        return Offered(staged.plan, sync=True)

    def write(self, staged: StagedBatches, offer: Offer) -> Written:
        self._messages.write(staged)
        return Written(staged.plan.end, waits=True)

    def sync(self) -> None:
        self._messages.sync()

    def durable(self) -> int:
        return self._messages.end  # With flush=async the operating system is safe enough.

    def written(self, load: list[Item], staged: StagedBatches) -> None:
        """Seen when it counts."""

    def abandon(self, staged: StagedBatches) -> None:
        self._messages.abandon(staged)

    def advance(self, mark: int) -> None:
        """`count` does it."""

    def count(self, staged: StagedBatches) -> None:
        self._messages.commit(staged)

    def finish(
        self, load: list[Item], staged: StagedBatches | None, error: TernError | None
    ) -> None:
        if staged is not None and error is not None:
            log.error("messages not stored", reason=error.message, batches=len(load))
        self._on_done(load, error)
