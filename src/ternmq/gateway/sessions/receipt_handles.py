"""Settles and extends messages by their handles: no pull, no group and no memory needed.

So a message that one gateway handed out is acknowledged at any other. Acks of one turn of the loop
that are about the same group share a request.
"""

import asyncio
from collections.abc import Sequence

from ternmq.client.client import Client
from ternmq.client.consuming.detached_consumer import HandleVerdict
from ternmq.core.errors import LeaseLost

TOGETHER_MAX = 1_000


class _Round:
    """Acks that go together."""

    def __init__(self) -> None:
        self.verdicts: list[HandleVerdict] = []
        self.sent: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()


class ReceiptHandles:
    """One way to the brokers for what became of messages."""

    def __init__(self, mq: Client) -> None:
        self._mq = mq
        self._rounds: dict[tuple[str, str], _Round] = {}
        self._sending: set[asyncio.Task[None]] = set()

    async def settle(
        self, topic: str, group: str, verdicts: Sequence[HandleVerdict]
    ) -> tuple[str, ...]:
        """Returns the handles that came too late."""
        consumer = self._mq.detached_consumer(topic, group=group)
        return (await consumer.settle(verdicts)).late

    async def extend(
        self, topic: str, group: str, handles: Sequence[str], lease_s: float
    ) -> tuple[str, ...]:
        """Returns the handles that came too late."""
        consumer = self._mq.detached_consumer(topic, group=group)
        return (await consumer.extend(handles, lease_s)).late

    async def settle_one(self, topic: str, group: str, verdict: HandleVerdict) -> None:
        """Returns when it is decided; raises `LeaseLost` where it came too late."""
        going = self._rounds.get((topic, group))
        if going is None or len(going.verdicts) >= TOGETHER_MAX:
            going = self._rounds[topic, group] = _Round()
            task = asyncio.create_task(self._send(topic, group, going), name="tern-settle")
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        going.verdicts.append(verdict)
        if verdict.handle in await asyncio.shield(going.sent):
            raise LeaseLost("this receipt is over: its message was settled, or comes again")

    async def _send(self, topic: str, group: str, going: _Round) -> None:
        await asyncio.sleep(0)  # Others of this turn come along.
        if self._rounds.get((topic, group)) is going:
            del self._rounds[topic, group]
        try:
            late = await self.settle(topic, group, going.verdicts)
            going.sent.set_result(frozenset(late))
        except Exception as error:
            going.sent.set_exception(error)
            going.sent.exception()  # Whoever waits has it; nobody may be left.
