"""How large a body may be: by this client's own setting, and by what its topic takes (D2).

Topics that take less than others are known from the routes, so that also a one-way message that is
too large is refused at the call. Bodies that fit every topic (`small`) are not looked at any
further. The broker has the last word: a limit that is news to this client is told as an answer.
"""

from ternmq.batch.layout import BATCH_SIZE_MAX
from ternmq.client.transport.cluster import Cluster
from ternmq.core.errors import TooLarge


class BodySizes:
    """The limits of one producer."""

    def __init__(self, cluster: Cluster, size_max: int) -> None:
        self._cluster = cluster
        self._size_max = size_max
        self.small = 0
        """Bodies up to this are taken by every topic."""
        self._learn()
        cluster.on_routes.append(self._learn)

    def _learn(self) -> None:
        topics = self._cluster.body_sizes().values()
        self.small = min(self._size_max, BATCH_SIZE_MAX - 1, *topics)

    def check(self, topic: str, size: int) -> None:
        """Refuse a body of this size."""
        if size <= self.small:
            return
        if size > self._size_max:
            raise TooLarge(
                f"a body of {size} bytes; this client sends at most {self._size_max} "
                "(body_size_max on connect): send a link to large data"
            )
        limit = self._cluster.body_sizes().get(topic)
        if limit is not None and size > limit:
            raise TooLarge(
                f"a body of {size} bytes; topic {topic!r} takes at most {limit}: send a link to "
                f"large data, or raise it with 'tern topic set {topic} --body-size-max'"
            )
