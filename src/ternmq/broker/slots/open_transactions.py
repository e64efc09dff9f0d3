"""Which order-key slots have rows in open transactions.

Asked only when slots move: the half batches are read then, each once as long as it is open. Nothing
of it is kept on disk, so it is the same after a restart and after a promotion.
"""

from ternmq.batch.layout import Column, ColumnPart
from ternmq.batch.readability import order_keys_of
from ternmq.batch.view import BatchView
from ternmq.broker.log.fetch import Fetcher
from ternmq.core.slots import slot_of
from ternmq.storage.consume.entry import ConsumeEntry
from ternmq.storage.messages.transactions import TransactionTable


class OpenTransactionSlots:
    """The slots of one broker that have order keys in open transactions."""

    def __init__(self, halves: TransactionTable, fetcher: Fetcher) -> None:
        self._halves = halves
        self._fetcher = fetcher
        self._known: dict[int, frozenset[int]] = {}
        """By where a half batch lies in the log."""
        self.slots: set[int] = set()
        """The answer to the last question."""

    async def of_open(self) -> set[int]:
        opened = [half for one in self._halves.open.values() for half in one.halves]
        known: dict[int, frozenset[int]] = {}
        for half in opened:
            found = self._known.get(half.offset)
            if found is None:
                place = ConsumeEntry(0, half.offset, half.size, half.count, 0, 0, 0)
                batch = (self._fetcher.now([place]) or await self._fetcher.later([place]))[0]
                found = _slots(BatchView(batch))
            known[half.offset] = found
        self._known = known
        self.slots = set().union(*known.values())
        return self.slots


def _slots(view: BatchView) -> frozenset[int]:
    if view.buffer(Column.ORDER_KEY, ColumnPart.OFFSETS) is None:
        return frozenset()
    return frozenset(slot_of(view.topic, key) for key in order_keys_of(view) if key is not None)
