"""Where a query starts and ends: what is named must be what is read."""

from typing import cast

import pytest

from ternmq.core.errors import BadRequest
from ternmq.pipeline.cluster import Bounds, ClusterView
from ternmq.pipeline.options import source_options
from ternmq.pipeline.positions import TopicPlace
from ternmq.pipeline.source.bounds import ending, starting

ORDERS = TopicPlace("orders", "main")


class ClusterDouble:
    """Holds a hundred messages of everything."""

    def bounds(self, _: TopicPlace) -> Bounds:
        return Bounds(0, 100)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("startingOffsets", '{"oders": {"main": 7}}', "'oders' on broker group 'main'"),
        ("startingOffsets", '{"orders": {"mian": 7}}', "'orders' on broker group 'mian'"),
        ("endingOffsets", '{"oders": {"main": 7}}', "endingOffsets names topic 'oders'"),
        ("startingOffsetsByTimestamp", '{"oders": 7}', "ByTimestamp names topic 'oders'"),
        ("endingOffsets", '{"orders": {"main": -3}}', "would read nothing"),
    ],
)
def test_a_position_of_something_that_is_not_read_is_a_mistake(
    option: str, value: str, said: str
) -> None:
    """P1: else a misspelt name is read from the beginning, in silence."""
    options = source_options({"subscribe": "orders", option: value}, streaming=False)
    found = cast(ClusterView, ClusterDouble())

    with pytest.raises(BadRequest, match=said):
        starting(options, found, [ORDERS])
        ending(options, found, [ORDERS])


def test_places_that_are_not_named_are_read_whole() -> None:
    text = '{"orders": {"main": 7}}'
    options = source_options({"subscribe": "orders,b", "startingOffsets": text}, streaming=False)

    places = [ORDERS, TopicPlace("b", "main")]
    assert starting(options, cast(ClusterView, ClusterDouble()), places) == {
        places[0]: 7,
        places[1]: 0,
    }
