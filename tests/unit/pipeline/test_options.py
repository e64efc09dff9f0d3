"""Options as users of Spark's Kafka source know them; mistakes are named."""

import pytest

from ternmq.core.errors import BadRequest
from ternmq.pipeline.options import SourceOptions, source_options
from ternmq.pipeline.positions import TopicPlace


def batch(**given: str) -> SourceOptions:
    return source_options({"subscribe": "orders", **given}, streaming=False)


def test_a_batch_starts_at_the_earliest_and_a_stream_at_the_latest() -> None:
    """P1."""
    assert batch().starting.word == "earliest"
    assert source_options({"subscribe": "a"}, streaming=True).starting.word == "latest"


def test_names_do_not_mind_their_case() -> None:
    assert batch(MINPARTITIONS="4").partitions_min == 4


def test_sequences_are_given_by_topic_and_broker_group() -> None:
    found = batch(startingOffsets='{"orders": {"main": 7, "east": -2}}').starting

    assert found.sequences == {TopicPlace("orders", "main"): 7, TopicPlace("orders", "east"): -2}


def test_a_time_goes_over_offsets() -> None:
    found = batch(startingTimestamp="1700000000000", startingOffsets="earliest").starting

    assert found.time_ms == 1_700_000_000_000


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOfsets": "earliest"}, "did you mean 'startingOffsets'"),
        ({"subscribePattern": "a.*"}, "exactly one of"),
        ({"subscribe": " , "}, "a comma list of topics"),
        ({"stream": "deliveries"}, "leave subscribe out"),
        ({"startingOffsets": "latest"}, "means nothing in a batch"),
        ({"startingOffsets": "{"}, "is not JSON"),
        ({"startingOffsets": '{"orders": 3}'}, "is JSON such as"),
        ({"endingOffsets": "earliest"}, "would read nothing"),
        ({"minPartitions": "0"}, "must be positive"),
        ({"minPartitions": "many"}, "whole numbers"),
        ({"failOnDataLoss": "maybe"}, "'true' or 'false'"),
        ({"maxTriggerDelay": "soon"}, "a time such as"),
        ({"stream": "acks"}, "'messages' or 'deliveries'"),
        ({"subscribe": "no spaces"}, "cannot be the name of a topic"),
        ({"startingOffsets": '{"orders": {"main": 1.5}}'}, "whole numbers"),
        ({"startingOffsets": '{"orders": {"main": Infinity}}'}, "whole numbers"),
        ({"startingOffsets": '{"orders": {"main": true}}'}, "whole numbers"),
        ({"endingTimestamp": "9" * 30}, "whole numbers"),
        ({"subscribe": "", "assign": "{}"}, "assign is JSON such as"),
        ({"subscribe": "", "assign": '{"orders": []}'}, "assign is JSON such as"),
        ({"subscribe": "", "assign": '{"orders": [["main"]]}'}, "assign is JSON such as"),
        ({"subscribe": "", "stream": "deliveries", "endingTimestamp": "1"}, "column 'at'"),
    ],
)
def test_a_mistake_is_said_in_words(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        batch(**given)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(BadRequest, match="a stream has no end"):
        source_options({"subscribe": "a", "endingOffsets": "latest"}, streaming=True)


def test_a_bad_pattern_is_refused() -> None:
    with pytest.raises(BadRequest, match="no regular expression"):
        source_options({"subscribePattern": "("}, streaming=False)


def test_a_topic_that_is_named_twice_is_read_once() -> None:
    """P1: else every row came twice."""
    assert source_options({"subscribe": "a, b,a"}, streaming=False).topics == ("a", "b")
    assigned = source_options({"assign": '{"a": ["main", "main"]}'}, streaming=False)
    assert assigned.places == (TopicPlace("a", "main"),)
