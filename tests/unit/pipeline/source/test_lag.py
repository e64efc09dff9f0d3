"""Lag is what lies between two positions."""

import json

from ternmq.pipeline.positions import SENTINEL, TopicPlace, to_json
from ternmq.pipeline.source.lag import behind

MAIN = TopicPlace("orders", "main")


def test_lag_is_the_difference_of_positions() -> None:
    at, latest = to_json({MAIN: 10}), to_json({MAIN: 25, TopicPlace("new", "main"): 3})

    assert behind(json.dumps(at), json.dumps(latest)) == {MAIN: 15, TopicPlace("new", "main"): 3}


def test_other_sources_and_new_queries_have_none() -> None:
    assert behind('{"topic":{"0":1}}', '{"topic":{"0":2}}') == {}
    assert behind(json.dumps(SENTINEL), json.dumps(to_json({MAIN: 1}))) == {}
    assert behind(None, "3") == {} == behind("x", "y")
