"""Rows of topics that the brokers refuse (paused, over a limit, gone), until they are tried again.

A refused topic is paused, longer each time it is refused again. Meanwhile no intents are made about
its rows, so they can still be cancelled, nothing is written for them, and other topics are not held
up. One message that is taken ends the pause. Pure memory; rows are 4 bytes each, as on the wheel.
"""

from collections.abc import Iterator

from ternmq.core.retry import doubled
from ternmq.delay.timing.ready import Batch

PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 30.0


class PausedTopics:
    """Rows by topic, until a moment of the monotonic clock."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}
        self._refusals: dict[int, int] = {}
        self._batches: dict[int, list[Batch]] = {}

    def refused(self, topic_id: int, monotonic: float) -> None:
        """A broker refuses this topic's messages. Batches sent side by side count once."""
        if topic_id in self._until:
            return
        times = self._refusals[topic_id] = self._refusals.get(topic_id, 0) + 1
        pause = doubled(times - 1, first=PAUSE_MIN_S, most=PAUSE_MAX_S)
        self._until[topic_id] = monotonic + pause

    def taken(self, topic_id: int) -> None:
        """A broker takes this topic's messages: what waits goes with the next tick."""
        self._refusals.pop(topic_id, None)
        if topic_id in self._until:
            self._until[topic_id] = 0.0

    def has(self, topic_id: int) -> bool:
        return topic_id in self._until

    def put(self, batch: Batch) -> None:
        """Rows of a topic that is paused."""
        self._batches.setdefault(batch.topic_id, []).append(batch)

    def over(self, monotonic: float) -> Iterator[Batch]:
        """The rows of topics whose pause is over, in the order they came."""
        for topic_id in [each for each, until in self._until.items() if until <= monotonic]:
            del self._until[topic_id]
            yield from self._batches.pop(topic_id, [])
