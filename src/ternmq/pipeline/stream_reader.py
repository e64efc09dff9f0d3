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

from ternmq.pipeline.batch_reader import RangePartition, RangeReader
from ternmq.pipeline.bounds import bounds_of, check_held, places_of, starting
from ternmq.pipeline.cluster import Bounds, cluster
from ternmq.pipeline.options import SourceOptions
from ternmq.pipeline.planning import Range, limited, weighed
from ternmq.pipeline.positions import SENTINEL, Place, from_json, is_sentinel, to_json

Offset = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("tern")`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._ranges = RangeReader(options, schema)
        self._target: dict[Place, int] | None = None
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
            return to_json(starting(options, found, places_of(options, found)), found.id())
        at = from_json(start, found.id())
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
        return to_json(latest, found.id())

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        if is_sentinel(start):
            return []
        here = cluster(self._options.url).id()
        first, stop = from_json(start, here), from_json(end, here)
        ranges: list[Range] = []
        for place, until in stop.items():
            at = first.get(place, 0)
            if until != at:
                bounds = bounds_of(cluster(self._options.url), place)
                # Fewer than before: the topic was made anew, and is read from its beginning.
                wanted = at if at <= until else bounds.end + 1
                held = check_held(self._options, place, wanted, bounds)
                ranges.append(Range(place, held, until))
        return list(self._ranges.tasks(ranges))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        return self._ranges.rows(partition)

    def commit(self, end: Offset) -> None:
        """Nothing to do: the position is Spark's, the broker keeps no trace of a reader."""

    def _ends(self, ask: Callable[[Place], Bounds | None]) -> dict[Place, int]:
        ends: dict[Place, int] = {}
        for place in places_of(self._options, cluster(self._options.url)):
            bounds = ask(place)
            if bounds is not None:
                ends[place] = bounds.end
        return ends

    def _not_back(self, place: Place, at: int, end: int) -> int:
        """An end below the start is old (of availableNow, or remembered), unless the topic holds
        less by now: then it was made anew."""
        if end >= at:
            return end
        bounds = cluster(self._options.url).bounds(place)
        return at if bounds is None or bounds.end >= at else bounds.end

    def _weighed(self, at: dict[Place, int], latest: dict[Place, int]) -> dict[Place, int]:
        """maxBytesPerTrigger, also where there is a limit of rows: the smaller one counts."""
        if self._options.stream == "deliveries":  # Their positions are bytes already.
            return limited(at, latest, self._options.bytes_max)
        weigh = cluster(self._options.url).after_bytes
        return weighed(at, latest, self._options.bytes_max, weigh)

    def _too_little(self, at: dict[Place, int], latest: dict[Place, int]) -> bool:
        """minOffsetsPerTrigger: wait for more, but not longer than maxTriggerDelay."""
        if not self._options.rows_min or self._target is not None:
            return False
        waiting = sum(end - at.get(place, 0) for place, end in latest.items())
        waited = time.monotonic() - self._triggered_at
        return waiting < self._options.rows_min and waited < self._options.trigger_delay_s
