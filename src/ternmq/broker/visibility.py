"""Visibility: what the parts of a broker are told once messages are safe.

On a leader: the cache of stored batches, the counters, waiting pulls and waiting reads, in this
order; and order-key slots, where a transaction was committed. On a follower: the cache and waiting
reads. Called once for each group commit, never for each message. Decides nothing: what is safe is
decided before (`broker/log`, `replication`).
"""

from collections.abc import Sequence

from ternmq.broker.delivery.pull import PullHandler
from ternmq.broker.delivery.read import ReadHandler
from ternmq.broker.limits.traffic import TrafficCounters
from ternmq.broker.log.fetch import Fetcher
from ternmq.broker.slots.slots import Slots
from ternmq.storage.log.append import committed
from ternmq.storage.messages.message_log import Append


class LeaderVisibility:
    """What a leader does when batches became safe."""

    def __init__(
        self,
        *,
        fetcher: Fetcher,
        slots: Slots,
        traffic: TrafficCounters,
        pull_handler: PullHandler,
        read_handler: ReadHandler,
    ) -> None:
        self._fetcher = fetcher
        self._slots = slots
        self._traffic = traffic
        self._pull_handler = pull_handler
        self._read_handler = read_handler

    def on_safe(self, appends: list[Append]) -> None:
        """Batches became safe: now consumers may see them."""
        self._fetcher.remember(appends)
        grown: dict[int, list[int]] = {}
        for append in appends:
            if append.special is not None:
                self._slots.committed()
                for placed in committed(append.special):
                    known = grown.setdefault(placed.topic_id, [0, 0, 0])
                    known[0] = placed.sequence + placed.count
                    known[1], known[2] = known[1] + placed.count, known[2] + placed.size
                continue
            end, size = append.base_sequence + append.count, len(append.batch)
            known = grown.setdefault(append.topic_id, [0, 0, 0])
            known[0], known[1], known[2] = end, known[1] + append.count, known[2] + size
        for topic_id, (end, rows, size) in grown.items():
            self._traffic.stored(topic_id, rows, size)
            self._pull_handler.grew(topic_id, end)
            if topic_id in self._read_handler.waiting:
                self._read_handler.grew(topic_id)


class FollowerVisibility:
    """What a follower does when more of its copy became safe, as the leader says."""

    def __init__(self, *, fetcher: Fetcher, read_handler: ReadHandler) -> None:
        self._fetcher = fetcher
        self._read_handler = read_handler

    def on_safe(self, appends: Sequence[Append]) -> None:
        """Readers may see these batches."""
        self._fetcher.remember(appends)
        grown = {append.topic_id for append in appends if append.special is None}
        for append in appends:
            if append.special is not None:
                grown |= {placed.topic_id for placed in committed(append.special)}
        for topic_id in sorted(grown):
            self._read_handler.grew(topic_id)
