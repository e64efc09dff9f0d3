"""`broker_transport_options`, and who listens to an exchange."""

import pytest

import ternmq
from ternmq.kombu.options import TransportOptions


def test_ours_are_checked_and_those_of_others_left_alone() -> None:
    options = TransportOptions.of(
        {"group": "tasks", "visibility_timeout": 3600, "broadcast_exchanges": ["news"]}
    )

    assert options.group == "tasks"
    assert options.is_everybodys("news", "direct")
    for wrong in (
        {"group": "no good"},
        {"ordered": "yes"},
        {"confirm": "maybe"},
        {"topic_prefix": "a b"},
        {"app": 3},
    ):
        with pytest.raises(ternmq.BadConfig, match="broker_transport_options"):
            TransportOptions.of(wrong)


def test_replies_events_and_fanouts_reach_everybody_and_tasks_one() -> None:
    options = TransportOptions()

    assert options.is_everybodys("celeryev", "topic")
    assert options.is_everybodys("reply.celery.pidbox", "direct")
    assert options.is_everybodys("anything", "fanout")
    assert not options.is_everybodys("celery", "direct")
