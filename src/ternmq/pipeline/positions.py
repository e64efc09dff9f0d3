"""Positions in all topics of a query: topic -> broker group -> next sequence.

Spark keeps a position as JSON text in its checkpoint and compares the texts, so equal positions
must be equal texts: keys are sorted, numbers are integers, there is one form only. A new query
begins at a constant sentinel; the first real position is worked out once and then kept by the
checkpoint, so that a failing first batch is repeated with the same rows (research: Spark asks for
the initial offset anew at every restart until a batch is committed). A position says which cluster
it is of, and the numbers of its topics, so that a checkpoint is not gone on with on another cluster
or in a topic that was made anew; older ones do not say it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ternmq.core.errors import BadRequest

VERSION = 1
DELIVERIES = "%deliveries"
"""Stands for a topic where delivery records are read; its positions count bytes, not messages."""
TopicPositions = dict[str, dict[str, int]]
SENTINEL: dict[str, Any] = {"v": VERSION, "new": True}


class TopicPlace(NamedTuple):
    """One sequence: a topic on a broker group."""

    topic: str
    broker_group: str


def to_json(
    positions: Mapping[TopicPlace, int],
    cluster: str = "",
    topic_ids: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """The canonical form."""
    topics: TopicPositions = {}
    for place in sorted(positions):
        topics.setdefault(place.topic, {})[place.broker_group] = int(positions[place])
    ids = {topic: topic_ids[topic] for topic in topics if topic in topic_ids} if topic_ids else {}
    known = {"c": cluster} if cluster else {}
    numbers = {"t": ids} if ids else {}
    return {**known, "o": topics, **numbers, "v": VERSION}


def topic_ids_of(offset: Mapping[str, Any]) -> dict[str, int]:
    """The numbers that the topics of a position had; none of a position that does not say."""
    return dict(offset.get("t", {}))


def is_sentinel(offset: Any) -> bool:
    return isinstance(offset, Mapping) and offset.get("new") is True


def from_json(offset: Any, cluster: str = "") -> dict[TopicPlace, int]:
    """Read what `to_json` made; a checkpoint of something else is a clear error."""
    if not isinstance(offset, Mapping):  # The rate source counts seconds.
        offset = {"": offset}
    if cluster and offset.get("c", cluster) != cluster:
        raise BadRequest(
            f"the checkpoint is of cluster {offset['c']}, this is {cluster}: "
            "give the query another url, or another checkpoint"
        )
    topics = offset.get("o")
    if offset.get("v") != VERSION or not isinstance(topics, Mapping):
        raise BadRequest(
            f"{dict(offset)!r} is not a position of the tern source: "
            "is the checkpoint that of another query?"
        )
    return {
        TopicPlace(topic, group): int(sequence)
        for topic, groups in topics.items()
        for group, sequence in groups.items()
    }


def merged(old: Mapping[TopicPlace, int], new: Mapping[TopicPlace, int]) -> dict[TopicPlace, int]:
    """Never backwards: a broker that is away, or behind, moves nothing."""
    return {place: max(old.get(place, 0), new.get(place, 0)) for place in old.keys() | new.keys()}
