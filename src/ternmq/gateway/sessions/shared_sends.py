"""Messages of many calls, stored together: what waits for one broker group travels in one batch.

A RocketMQ client sends each message in a call of its own. Those of one turn of the loop that are
for the same topic and broker group share a batch; while that is under way the next one gathers. So
a lone sender waits for nothing, many share, and messages of one message group keep the order in
which they came. Each is stored once by its id, and one that is refused hurts no other.
"""

import asyncio
from dataclasses import dataclass, field

from ternmq.batch.encoder import Outgoing
from ternmq.client.producing.deliver_once import OnceOutcome, SendsOnce, deliver
from ternmq.client.producing.send_once import OnceReceipt
from ternmq.core.errors import TernError, Unavailable

TOGETHER_MAX = 1_000
TOGETHER_SIZE_MAX = 4 * 1024 * 1024
TIMEOUT_S = 2.5
"""Clients wait 3 s for an answer: before that they are told to try again."""
OVERTAKEN = "one before it in its message group was not stored: send it again"

SendPlace = tuple[str, str]
"""Topic and broker group."""


@dataclass(slots=True)
class SendLine:
    """What waits for one place."""

    rows: list[Outgoing] = field(default_factory=list)
    answers: "list[asyncio.Future[OnceReceipt]]" = field(default_factory=list)


class SharedSends:
    """All messages that one gateway process has under way."""

    def __init__(self, mq: SendsOnce) -> None:
        self._mq = mq
        self._lines: dict[SendPlace, SendLine] = {}
        self._sending: set[asyncio.Task[None]] = set()

    async def send(self, topic: str, broker_group: str, row: Outgoing) -> OnceReceipt:
        """Returns when it is stored; raises why it is not, or not certainly."""
        answer: asyncio.Future[OnceReceipt] = asyncio.get_running_loop().create_future()
        place = (topic, broker_group)
        line = self._lines.get(place)
        if line is None:
            line = self._lines[place] = SendLine()
            task = asyncio.create_task(self._run(place, line), name="tern-shared-sends")
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        line.rows.append(row)
        line.answers.append(answer)
        return await answer

    async def _run(self, place: SendPlace, line: SendLine) -> None:
        """Until nothing waits for this place any more."""
        while line.rows:
            count = _together(line.rows)
            rows, line.rows = line.rows[:count], line.rows[count:]
            answers, line.answers = line.answers[:count], line.answers[count:]
            outcomes = await self._deliver(place, rows)
            for answer, outcome in zip(answers, outcomes, strict=True):
                _tell(answer, outcome)
        del self._lines[place]

    async def _deliver(self, place: SendPlace, rows: list[Outgoing]) -> list[OnceOutcome]:
        topic, broker_group = place
        try:
            return await deliver(
                self._mq, topic, rows, broker_group=broker_group, timeout=TIMEOUT_S
            )
        except Exception as bug:
            failed = TernError(f"this message was not stored, by a bug of ours: {bug!r}")
            return [failed] * len(rows)


def _together(rows: list[Outgoing]) -> int:
    """How many of the first go in one batch."""
    size = 0
    for count, row in enumerate(rows[:TOGETHER_MAX]):
        size += len(row.body)
        if size > TOGETHER_SIZE_MAX and count:
            return count
    return min(len(rows), TOGETHER_MAX)


def _tell(answer: "asyncio.Future[OnceReceipt]", outcome: OnceOutcome) -> None:
    if answer.done():  # Its caller has gone.
        return
    if isinstance(outcome, OnceReceipt):
        answer.set_result(outcome)
    elif isinstance(outcome, TernError):
        answer.set_exception(outcome)
    else:
        answer.set_exception(Unavailable(OVERTAKEN))
