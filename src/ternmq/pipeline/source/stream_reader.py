"""`spark.readStream`: micro-batches from position to position.

Spark asks `latestOffset` again and again and writes what it answers into its checkpoint before it
reads. A new query begins at a sentinel; its first batch is empty and only fixes where the query
starts. A place that appears later is read from its first message on. `stop` is never called by
Spark 4.3, so nothing here needs it.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ternmq.core.errors import BadRequest
from ternmq.pipeline.cluster import Bounds, cluster
from ternmq.pipeline.options import SourceOptions
from ternmq.pipeline.positions import (
    SENTINEL,
    TopicPlace,
    from_json,
    is_sentinel,
    to_json,
    topic_ids_of,
)
from ternmq.pipeline.source.batch_reader import ArrowRangeReader, RangePartition
from ternmq.pipeline.source.bounds import bounds_of, check_held, places_of, starting
from ternmq.pipeline.source.ranges import Range, limited, weighed

Offset = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("tern")`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._ranges = ArrowRangeReader(options, schema)
        self._target: dict[TopicPlace, int] | None = None
        self._triggered_at = time.monotonic()

    def initialOffset(self) -> Offset:  # noqa: N802
        return SENTINEL

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.rows_max:
            return ReadMaxRows(self._options.rows_max)
        size = self._options.bytes_max
        return ReadMaxBytes(size) if size else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        found = cluster(self._options.url)
        self._target = self._ends(found.bounds)

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        found = cluster(self._options.url)
        return to_json(self._ends(found.recent_bounds), found.id())

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        options, found = self._options, cluster(self._options.url)
        if is_sentinel(start):
            begin = starting(options, found, places_of(options, found))
            return to_json(begin, found.id(), found.recent_topic_ids())
        at = from_json(start, found.id())
        self._check_same_query(at)
        ids = found.recent_topic_ids()
        anew = _made_anew(topic_ids_of(start), ids)
        at = {place: 0 if place.topic in anew else sequence for place, sequence in at.items()}
        latest = self._ends(found.recent_bounds) if self._target is None else self._target
        # A place that is not there now (its topic was deleted) stays where it was.
        latest = {place: latest.get(place, at.get(place, 0)) for place in latest.keys() | at.keys()}
        latest = {
            place: self._not_back(place, at.get(place, 0), end) for place, end in latest.items()
        }
        if self._too_little(at, latest):
            return start
        if isinstance(limit, ReadMaxRows):
            latest = limited(at, latest, limit.max_rows)
        if options.bytes_max:
            latest = self._weighed(at, latest)
        if latest != at:
            self._triggered_at = time.monotonic()
        return to_json(latest, found.id(), {**topic_ids_of(start), **ids})

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        if is_sentinel(start):
            return []
        found = cluster(self._options.url)
        first, stop = from_json(start, found.id()), from_json(end, found.id())
        anew = _made_anew(topic_ids_of(start), found.topic_ids())
        ranges: list[Range] = []
        for place, until in stop.items():
            at = first.get(place, 0)
            if until != at or place.topic in anew:
                bounds = bounds_of(found, place)
                # Fewer than before: the topic was made anew, and is read from its beginning.
                fresh = until < at or place.topic in anew
                held = check_held(
                    self._options, place, bounds.end + 1 if fresh else at, bounds, anew=fresh
                )
                ranges.append(Range(place, held, min(until, bounds.end) if fresh else until))
        return list(self._ranges.tasks(ranges))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        return self._ranges.rows(partition)

    def commit(self, end: Offset) -> None:
        """Nothing to do: the position is Spark's, the broker keeps no trace of a reader."""

    def _ends(self, ask: Callable[[TopicPlace], Bounds | None]) -> dict[TopicPlace, int]:
        ends: dict[TopicPlace, int] = {}
        for place in places_of(self._options, cluster(self._options.url)):
            bounds = ask(place)
            if bounds is not None:
                ends[place] = bounds.end
        return ends

    def _check_same_query(self, at: dict[TopicPlace, int]) -> None:
        """A checkpoint that shares no topic with this query is that of another one."""
        theirs = {place.topic for place in at}
        if self._options.topics and theirs and theirs.isdisjoint(self._options.topics):
            raise BadRequest(
                f"the checkpoint is of topic {', '.join(sorted(theirs))}, this query reads "
                f"{', '.join(self._options.topics)}: give the query a checkpoint of its own"
            )

    def _not_back(self, place: TopicPlace, at: int, end: int) -> int:
        """An end below the start is old (of availableNow, or remembered), unless the topic holds
        less by now: then it was made anew."""
        if end >= at:
            return end
        bounds = cluster(self._options.url).bounds(place)
        return at if bounds is None or bounds.end >= at else bounds.end

    def _weighed(
        self, at: dict[TopicPlace, int], latest: dict[TopicPlace, int]
    ) -> dict[TopicPlace, int]:
        """maxBytesPerTrigger, also where there is a limit of rows: the smaller one counts."""
        if self._options.stream == "deliveries":  # Their positions are bytes already.
            return limited(at, latest, self._options.bytes_max)
        weigh = cluster(self._options.url).after_bytes
        return weighed(at, latest, self._options.bytes_max, weigh)

    def _too_little(self, at: dict[TopicPlace, int], latest: dict[TopicPlace, int]) -> bool:
        """minOffsetsPerTrigger: wait for more, but not longer than maxTriggerDelay."""
        if not self._options.rows_min or self._target is not None:
            return False
        waiting = sum(end - at.get(place, 0) for place, end in latest.items())
        waited = time.monotonic() - self._triggered_at
        return waiting < self._options.rows_min and waited < self._options.trigger_delay_s


def _made_anew(before: dict[str, int], now: dict[str, int]) -> set[str]:
    """Topics that were deleted and made again: other messages under the same name."""
    return {topic for topic, number in before.items() if now.get(topic, number) != number}
