"""Messages that were over a topic's limit and were put aside: finding and handling them.

Answers are `DeadOpen` and `DeadDone`, as for dead letters; ranges are sequences of the hidden topic
`%refused.TOPIC`.
"""

from ternmq.wire.messages.commands import Record


class RefusedFind(Record, frozen=True):
    topic: str


class RefusedHandle(Record, frozen=True):
    topic: str
    ranges: list[tuple[int, int]]
