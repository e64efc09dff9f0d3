"""How far a streaming query is behind, for Prometheus and Grafana.

    spark.streams.addListener(LagListener())            # and prometheus_client.start_http_server(…)

Spark tells a listener after each micro-batch where the source was and where the topics ended; the
difference is the lag, in messages, per query, topic and broker group.
"""

import json
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ternmq.pipeline.positions import TopicPlace, from_json, is_sentinel


def behind(end_offset: str | None, latest_offset: str | None) -> dict[TopicPlace, int]:
    """Pure: messages between two positions as Spark tells them; empty for other sources."""
    if not end_offset or not latest_offset:
        return {}
    try:
        at, latest = json.loads(end_offset), json.loads(latest_offset)
    except ValueError:
        return {}
    if not _ours(at) or not _ours(latest) or is_sentinel(at):
        return {}
    done = from_json(at)
    return {place: max(0, end - done.get(place, 0)) for place, end in from_json(latest).items()}


def _ours(offset: Any) -> bool:
    return isinstance(offset, dict) and "v" in offset


class LagListener(StreamingQueryListener):
    """Gauges that follow the queries of a session."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        labels = ["query", "topic", "broker_group"]
        self.lag = Gauge(
            "tern_spark_lag_messages", "Messages a query is behind.", labels, registry=registry
        )
        self.rows = Counter(
            "tern_spark_rows", "Rows that queries have read.", ["query"], registry=registry
        )

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing to tell yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        query = progress.name or str(progress.id)
        for source in progress.sources:
            for place, count in behind(source.endOffset, source.latestOffset).items():
                self.lag.labels(query, place.topic, place.broker_group).set(count)
            self.rows.labels(query).inc(max(0, source.numInputRows))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """The gauges of a query that ended keep their last value: a stopped query is behind."""
