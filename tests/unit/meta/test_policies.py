"""What a changed policy makes of settings."""

import pytest

from ternmq.core.errors import BadName, BadRequest
from ternmq.meta.policies import (
    app_limit,
    check_settings,
    limit_changes,
    limited_apps,
    topic_change,
)
from ternmq.wire.messages.limits import AppLimit, LimitSet, TopicSet
from ternmq.wire.messages.topics import Topic, TopicSettings


def test_only_what_is_named_changes() -> None:
    before = TopicSettings(closed=True, apps=["shop"], rate=5)

    after = topic_change(TopicSet(name="t", rate=0, over_limit="dead_letter"))(before)

    assert after == TopicSettings(closed=True, apps=["shop"], over_limit="dead_letter")


@pytest.mark.parametrize(
    "wanted",
    [
        TopicSet(name="t", rate=-1),
        TopicSet(name="t", bytes_rate=10**13),
        TopicSet(name="t", body_size_max=0),
        TopicSet(name="t", apps=["a b"]),
    ],
)
def test_a_value_out_of_its_limits_is_refused(wanted: TopicSet) -> None:
    with pytest.raises(BadRequest):
        topic_change(wanted)


@pytest.mark.parametrize(
    "settings",
    [
        TopicSettings(body_size_max=0),
        TopicSettings(body_size_max=10**10),
        TopicSettings(keep_ms=-1),
        TopicSettings(rate=-1),
        TopicSettings(on_groups=["a b"]),
        TopicSettings(broker_groups=1_001),
    ],
)
def test_a_topic_is_not_made_with_what_none_can_have(settings: TopicSettings) -> None:
    with pytest.raises(BadRequest):
        check_settings(settings)


def test_limits_of_an_application_are_kept_and_found_again() -> None:
    """J13: send and consume apart, each changed without the other."""
    topics: dict[str, Topic] = {}

    def put(wanted: LimitSet) -> None:
        for name, change in limit_changes(wanted).items():
            old = topics.get(name)
            settings = topic_change(change)(old.settings if old else TopicSettings())
            topics[name] = Topic(id=1, name=name, created_at_ms=0, settings=settings)

    put(LimitSet(app="a.b", rate=5, bytes_rate=6))
    put(LimitSet(app="a.b", consume_rate=7))
    put(LimitSet(app="gone", rate=5))
    put(LimitSet(app="gone", rate=0))

    expected = AppLimit(app="a.b", rate=5, bytes_rate=6, consume_rate=7)
    assert app_limit("a.b", topics.get) == expected
    assert app_limit("nobody", topics.get) == AppLimit(app="nobody")
    assert limited_apps(list(topics.values())) == ["a.b"]


def test_an_application_is_named_by_the_rule() -> None:
    with pytest.raises(BadName):
        limit_changes(LimitSet(app="a b", rate=1))
