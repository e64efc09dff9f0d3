"""Where a query starts and ends: words, sequences and times made into one sequence per place.

Asked of the brokers, decided here. A place is a topic on a broker group.
"""

from collections.abc import Collection

from ternmq.core.errors import BadRequest, TopicNotFound
from ternmq.pipeline.cluster import Bounds, ClusterView
from ternmq.pipeline.options import EARLIEST, LATEST, SourceOptions, Where
from ternmq.pipeline.positions import DELIVERIES, TopicPlace
from ternmq.pipeline.source.data_loss import DataLoss


def places_of(options: SourceOptions, cluster: ClusterView) -> list[TopicPlace]:
    """Every place that the query reads now; a topic that is not there is an error by name."""
    groups = cluster.broker_groups()
    if options.stream == "deliveries":
        return sorted(TopicPlace(DELIVERIES, group) for group in groups)
    if options.places:
        unknown = sorted({place.broker_group for place in options.places} - set(groups))
        if unknown:
            raise BadRequest(
                f"assign names the broker group {unknown[0]!r}; there are: {', '.join(groups)}"
            )
        return sorted(options.places)
    if options.pattern:
        topics = [topic for topic in cluster.topics() if options.wants(topic)]
    else:
        topics = list(options.topics)
    return sorted(TopicPlace(topic, group) for topic in topics for group in groups)


def bounds_of(cluster: ClusterView, place: TopicPlace) -> Bounds:
    found = cluster.bounds(place)
    if found is None:
        raise TopicNotFound(
            f"there is no topic {place.topic!r}; 'tern topic list' shows what there is"
        )
    return found


def starting(
    options: SourceOptions, cluster: ClusterView, places: Collection[TopicPlace]
) -> dict[TopicPlace, int]:
    """The first sequence of each place."""
    _check_named("starting", options.starting, places)
    return {place: _start(options, cluster, place) for place in places}


def ending(
    options: SourceOptions, cluster: ClusterView, places: Collection[TopicPlace]
) -> dict[TopicPlace, int]:
    """The sequence after the last of each place."""
    _check_named("ending", options.ending, places)
    return {place: _end(options, cluster, place) for place in places}


def _check_named(side: str, where: Where, places: Collection[TopicPlace]) -> None:
    """A misspelt topic or broker group would else be read from somewhere else, in silence."""
    strange = sorted(where.sequences.keys() - set(places))
    if strange:
        raise BadRequest(
            f"{side}Offsets names topic {strange[0].topic!r} on broker group "
            f"{strange[0].broker_group!r}, which this query does not read"
        )
    topics = sorted(where.times_ms.keys() - {place.topic for place in places})
    if topics:
        raise BadRequest(
            f"{side}OffsetsByTimestamp names topic {topics[0]!r}, which this query does not read"
        )


def _start(options: SourceOptions, cluster: ClusterView, place: TopicPlace) -> int:
    where = options.starting
    bounds = bounds_of(cluster, place)
    time_ms = where.time_ms if where.time_ms is not None else where.times_ms.get(place.topic)
    if time_ms is not None:
        found = cluster.at_time(place, time_ms)
        if found is None and options.time_missing == "error" and bounds.end > bounds.first:
            raise BadRequest(
                f"topic {place.topic!r} has no message at or after the starting time {time_ms}; "
                "set startingOffsetsByTimestampStrategy to 'latest' to start at its end"
            )
        return bounds.end if found is None else found
    if where.word == "latest":
        return bounds.end
    sequence = where.sequences.get(place, EARLIEST)
    if sequence == LATEST:
        return bounds.end
    if sequence == EARLIEST:
        return bounds.first
    return check_held(options, place, sequence, bounds)


def _end(options: SourceOptions, cluster: ClusterView, place: TopicPlace) -> int:
    where = options.ending
    bounds = bounds_of(cluster, place)
    time_ms = where.time_ms if where.time_ms is not None else where.times_ms.get(place.topic)
    if time_ms is not None:
        found = cluster.at_time(place, time_ms)
        return bounds.end if found is None else found
    sequence = where.sequences.get(place, LATEST)
    if sequence < LATEST:
        raise BadRequest(f"endingOffsets cannot be {sequence}: that would read nothing")
    return bounds.end if sequence == LATEST else min(sequence, bounds.end)


def check_held(
    options: SourceOptions, place: TopicPlace, sequence: int, bounds: Bounds, *, anew: bool = False
) -> int:
    """The sequence to start at, or an error that says what is gone."""
    if anew and options.fail_on_data_loss:
        raise DataLoss(
            f"topic {place.topic!r} was deleted and made anew since the last batch: it holds other "
            "messages now; set failOnDataLoss to false to read them from the beginning"
        )
    if sequence < 0:
        raise BadRequest(f"sequence {sequence} of {place.topic!r}: use 0 or more, -2 or -1")
    if bounds.first <= sequence <= bounds.end:
        return sequence
    if options.fail_on_data_loss:
        raise DataLoss(
            f"topic {place.topic!r} on {place.broker_group!r} holds {bounds.first} to "
            f"{bounds.end}, the query would start at {sequence}: messages were removed, "
            "or the topic was made anew; set failOnDataLoss to false to go on with what there is"
        )
    return bounds.first
