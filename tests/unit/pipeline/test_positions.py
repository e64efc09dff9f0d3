"""Positions have one text each, since Spark compares texts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.core.errors import BadRequest
from ternmq.pipeline.positions import SENTINEL, TopicPlace, from_json, is_sentinel, to_json

places = st.builds(TopicPlace, st.sampled_from("abc"), st.sampled_from(["main", "east", "west"]))


@given(found=st.dictionaries(places, st.integers(0, 2**62)))
def test_equal_positions_are_equal_texts_and_read_back(found: dict[TopicPlace, int]) -> None:
    turned = dict(reversed(found.items()))

    assert json.dumps(to_json(found)) == json.dumps(to_json(turned))
    assert from_json(json.loads(json.dumps(to_json(found)))) == found


def test_a_new_query_begins_at_a_constant() -> None:
    assert is_sentinel(json.loads(json.dumps(SENTINEL)))
    assert not is_sentinel(to_json({}))


@pytest.mark.parametrize(
    "offset", [{}, {"v": 2, "o": {}}, {"topic": {"0": 17}}, 5, {"new": {"0": 17}}]
)
def test_the_checkpoint_of_another_query_is_a_clear_error(offset: object) -> None:
    assert not is_sentinel(offset)
    with pytest.raises(BadRequest, match="checkpoint"):
        from_json(offset)


def test_a_position_is_of_one_cluster_and_older_ones_do_not_say_which() -> None:
    here = TopicPlace("orders", "main")

    assert json.dumps(to_json({here: 7}, "abc")) == (
        '{"c": "abc", "o": {"orders": {"main": 7}}, "v": 1}'
    )
    assert from_json(to_json({here: 7}, "abc"), "abc") == {here: 7}
    assert from_json(to_json({here: 7}), "abc") == {here: 7}
    with pytest.raises(BadRequest, match="the checkpoint is of cluster abc, this is xyz"):
        from_json(to_json({here: 7}, "abc"), "xyz")
