"""Where micro-batches go: forward, unless a topic was made anew."""

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from ternmq.core.errors import BadRequest
from ternmq.pipeline.cluster import Bounds
from ternmq.pipeline.options import source_options
from ternmq.pipeline.positions import TopicPlace, to_json
from ternmq.pipeline.source import stream_reader
from ternmq.pipeline.source.columns import full_schema
from ternmq.pipeline.source.data_loss import DataLoss

ORDERS = TopicPlace("orders", "main")


class ClusterDouble:
    """Holds `end` messages of one topic; what it remembers may be older."""

    def __init__(self, end: int) -> None:
        self.end = self.remembered = end
        self.topic_id = 1

    def id(self) -> str:
        return "here"

    def broker_groups(self) -> list[str]:
        return ["main"]

    def topic_ids(self) -> dict[str, int]:
        return {"orders": self.topic_id}

    recent_topic_ids = topic_ids

    def bounds(self, _: TopicPlace) -> Bounds:
        return Bounds(0, self.end)

    def recent_bounds(self, _: TopicPlace) -> Bounds:
        return Bounds(0, self.remembered)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> ClusterDouble:
    double = ClusterDouble(100)
    monkeypatch.setattr(stream_reader, "cluster", lambda _: double)
    return double


def reader(**given: str) -> stream_reader.StreamReader:
    options = source_options({"subscribe": "orders", **given}, streaming=True)
    return stream_reader.StreamReader(options, full_schema("messages", properties=True))


def at(sequence: int, topic_id: int = 1) -> dict[str, Any]:
    return to_json({ORDERS: sequence}, "here", {"orders": topic_id})


def test_an_end_that_is_remembered_or_of_available_now_does_not_go_back(
    found: ClusterDouble,
) -> None:
    """P1: the start 'latest' is asked for after the end of availableNow."""
    one, now = reader(), reader()
    now.prepareForTriggerAvailableNow()
    found.end = 105

    assert one.latestOffset(at(105), ReadAllAvailable()) == at(105)
    assert now.latestOffset(at(105), ReadAllAvailable()) == at(105)


def test_a_topic_made_anew_is_told_also_when_more_came_meanwhile(found: ClusterDouble) -> None:
    """P1: else its first messages were passed over in silence."""
    found.end = found.remembered = 5
    end = reader().latestOffset(at(100), ReadAllAvailable())
    found.end = 9

    assert end == at(5)
    with pytest.raises(DataLoss, match="made anew"):
        reader().partitions(at(100), end)
    [task] = reader(failOnDataLoss="false").partitions(at(100), end)
    assert (task.first, task.end) == (0, 5)  # type: ignore[attr-defined]


def test_a_topic_made_anew_is_told_also_when_it_has_grown_past_the_old_position(
    found: ClusterDouble,
) -> None:
    """P1: the sequence alone would go on in the middle of other messages."""
    found.topic_id = 2
    end = reader().latestOffset(at(60), ReadAllAvailable())

    assert end == at(100, topic_id=2)
    with pytest.raises(DataLoss, match="deleted and made anew"):
        reader().partitions(at(60), end)
    [task] = reader(failOnDataLoss="false").partitions(at(60), end)
    assert (task.first, task.end) == (0, 100)  # type: ignore[attr-defined]
    with pytest.raises(DataLoss, match="deleted and made anew"):
        reader().partitions(at(60), at(100))  # A batch that is tried again after it.


def test_a_position_without_numbers_of_topics_is_gone_on_with(found: ClusterDouble) -> None:
    """Checkpoints of earlier versions do not say them."""
    before = to_json({ORDERS: 60}, "here")

    end = reader().latestOffset(before, ReadAllAvailable())

    assert end == at(100)
    [task] = reader().partitions(before, end)
    assert (task.first, task.end) == (60, 100)  # type: ignore[attr-defined]


def test_the_checkpoint_of_a_query_over_other_topics_is_refused(found: ClusterDouble) -> None:
    """P1: else the old topic's positions were carried along, and this one read from its start."""
    strange = to_json({TopicPlace("bookings", "main"): 7}, "here")

    with pytest.raises(BadRequest, match="is of topic bookings, this query reads orders"):
        reader().latestOffset(strange, ReadAllAvailable())
