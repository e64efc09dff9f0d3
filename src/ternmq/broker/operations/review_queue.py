"""Where people handle what was kept for them: dead letters, messages that were put aside.

What is handled is the progress of a group of our own on the hidden topic that keeps them. Nobody
joins that group; a row is open until it is closed here, and closing is a decision: safe when it is
answered.

Several people may be at it at once. Who handles a row has it in hand until it is closed; for
everybody else it is gone. So a row is sent again once, or deleted, never both.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence

from ternmq.broker.delivery.consumers import Consumers
from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.log.commit import Committer
from ternmq.core.errors import TernError
from ternmq.core.range_set import RangeSet
from ternmq.wire.messages.dead_letters import DeadDone
from ternmq.wire.messages.groups import Start
from ternmq.wire.messages.topics import Topic

HANDLED = "%handled"
GONE_MAX = 10_000  # Ranges of rows that were not open, in one answer.


class ReviewQueue:
    """Rows that wait for a person's decision: opened for it, closed by it."""

    def __init__(
        self, *, groups: ConsumerGroups, consumers: Consumers, committer: Committer
    ) -> None:
        self._groups = groups
        self._consumers = consumers
        self._committer = committer
        self._in_hand: set[tuple[int, int]] = set()  # Topic id, sequence; one per request.

    async def of(self, topic: Topic) -> ConsumerGroup:
        """Our own group on a hidden topic, knowing every row of it."""
        reviewed, _ = await self._consumers.make_group(topic, HANDLED, Start(at="earliest"))
        if reviewed.lane.next < reviewed.lane.end:
            reviewed.lane.look_ahead(reviewed.lane.end)
        return reviewed

    def open_rows(self, topic: Topic, bounds: tuple[int, int]) -> int:
        """How many rows nobody has handled; looked up, nothing is made."""
        reviewed = self._groups.find(topic.id, HANDLED)
        if reviewed is None:
            return bounds[1] - bounds[0]
        return reviewed.lane.end - reviewed.lane.start - reviewed.lane.done.count

    async def send(
        self,
        reviewed: ConsumerGroup,
        ranges: Sequence[tuple[int, int]],
        send_one: Callable[[int], Awaitable[None]],
    ) -> DeadDone:
        """Send every open row of these ranges, one by one, and close it when that is safe."""
        handled = 0
        failed: list[str] = []
        gone = RangeSet()
        for first, end in ranges:
            for sequence in self._open(reviewed, first, end, gone):
                place = (reviewed.topic_id, sequence)
                if place in self._in_hand or sequence in reviewed.lane.done:
                    gone.add(sequence, sequence + 1)
                    continue
                self._in_hand.add(place)
                try:
                    await send_one(sequence)
                    handled += await self._close(reviewed, sequence, sequence + 1)
                except TernError as error:
                    failed.append(f"{sequence}: {error.message}")
                finally:
                    self._in_hand.discard(place)
        return DeadDone(handled=handled, failed=failed, gone=list(gone)[:GONE_MAX])

    async def delete(self, reviewed: ConsumerGroup, ranges: Sequence[tuple[int, int]]) -> DeadDone:
        """Close every open row of these ranges that nobody is sending right now."""
        handled = 0
        gone = RangeSet()
        for first, end in ranges:
            still = RangeSet(reviewed.lane.done.gaps(first, min(end, reviewed.lane.end)))
            for topic_id, sequence in self._in_hand:
                if topic_id == reviewed.topic_id:
                    still.remove(sequence, sequence + 1)
            for a, b in still.gaps(first, min(end, reviewed.lane.end)):
                gone.add(a, b)
            for a, b in still:
                handled += await self._close(reviewed, a, b)
        return DeadDone(handled=handled, failed=[], gone=list(gone)[:GONE_MAX])

    def _open(self, reviewed: ConsumerGroup, first: int, end: int, gone: RangeSet) -> Iterator[int]:
        end = min(end, reviewed.lane.end)
        for a, b in reviewed.lane.done.overlap(first, end):
            gone.add(a, b)
        for a, b in reviewed.lane.done.gaps(first, end):
            yield from range(a, b)

    async def _close(self, reviewed: ConsumerGroup, first: int, end: int) -> int:
        """Rows are handled; returns how many of them were open."""
        result = reviewed.lane.ack(0, first, end)
        if result.changes:
            records = [self._groups.to_record(reviewed, change) for change in result.changes]
            await self._committer.decide(records)
        return result.settled
