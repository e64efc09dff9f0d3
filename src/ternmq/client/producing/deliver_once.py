"""Delivers rows with ids to one broker group, each stored once; outbox and spool use it.

`deliver` tells for each row what became of it. One row that can never be stored does not hurt its
neighbours: a refused batch is halved until the culprit stands alone, also where only the order keys
of some have `Moved`: those are certainly not stored, and may be given to another group. Rows that
share the order key of a row that failed are not sent at all, so nothing overtakes. Repeating a
delivery is always safe: the broker group knows the ids it has. Keeps no state, decides nothing
about when to try again.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from ternmq.batch.encoder import Outgoing
from ternmq.client.producing.send_once import OnceReceipt
from ternmq.core.errors import Closed, Moved, SendUnknown, TernError, Unavailable

OnceOutcome = OnceReceipt | TernError | None
"""Its receipt, why it is not (certainly) stored, or None: not sent, it would have overtaken."""


class SendsOnce(Protocol):
    """The part of a client that `deliver` needs."""

    async def send_once(
        self, topic: str, rows: Sequence[Outgoing], broker_group: str | None = None
    ) -> list[OnceReceipt]: ...

    def broker_groups(self) -> list[str]: ...

    def taking_groups(self) -> list[str]: ...

    def slot_owner(self, topic: str, order_key: str) -> str | None: ...


def choose_group(groups: Sequence[str], turn: int) -> str | None:
    """The group for a new message without an order key: by turns."""
    known = sorted(groups)
    return known[turn % len(known)] if known else None


def away(error: TernError) -> bool:
    """Is this about the broker group and not about the message?"""
    return error.retryable or isinstance(error, SendUnknown | Closed)


async def deliver(
    mq: SendsOnce, topic: str, rows: Sequence[Outgoing], *, broker_group: str, timeout: float
) -> list[OnceOutcome]:
    """Send rows of one topic to one group; `timeout` is for all of it together."""
    outcomes: list[OnceOutcome] = [None] * len(rows)
    stopped: set[str] = set()
    give_up = asyncio.get_running_loop().time() + timeout

    async def part(chosen: Sequence[int]) -> None:
        chosen = [at for at in chosen if rows[at].order_key not in stopped]
        if not chosen:
            return
        answer = await _send(mq, topic, [rows[at] for at in chosen], broker_group, give_up)
        if not isinstance(answer, TernError):
            for at, receipt in zip(chosen, answer, strict=True):
                outcomes[at] = receipt
        elif len(chosen) > 1 and (isinstance(answer, Moved) or not away(answer)):
            middle = len(chosen) // 2
            await part(chosen[:middle])
            await part(chosen[middle:])
        else:
            for at in chosen:
                outcomes[at] = answer
            stopped.update(key for at in chosen if (key := rows[at].order_key) is not None)

    await part(range(len(rows)))
    return outcomes


async def _send(
    mq: SendsOnce, topic: str, rows: list[Outgoing], broker_group: str, give_up: float
) -> list[OnceReceipt] | TernError:
    try:
        async with asyncio.timeout_at(give_up):
            return await mq.send_once(topic, rows, broker_group)
    except TimeoutError:
        known = broker_group in mq.broker_groups()
        why = "did not answer in time" if known else "is not known to the meta server"
        return Unavailable(f"broker group {broker_group!r} {why}")
    except TernError as error:
        return error
