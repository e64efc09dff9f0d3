"""Settings with mistakes are told by name, before a server sees them (J13)."""

from typing import Any

import pytest

from ternmq.client.admin.settings import change_of, checked
from ternmq.client.model.start import make_start
from ternmq.core.errors import BadRequest
from ternmq.wire.messages.groups import GroupSet, Start
from ternmq.wire.messages.limits import TopicSet
from ternmq.wire.messages.topics import TopicSettings


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rate": "fast"}, "rate is 'fast'; it can be a whole number"),
        ({"rate": 1.5}, "rate is 1.5; it can be a whole number"),
        ({"rate": 2**70}, "it can be a whole number"),
        ({"paused": "no"}, "paused is 'no'; it can be True or False"),
        ({"retry": 5}, "retry is 5; it can be a text"),
        ({"retry": object}, "it can be a text"),
        ({"retries": 5}, "there is no setting 'retries'; there are retry, attempts_max"),
    ],
)
def test_a_wrong_setting_of_a_group_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest) as caught:
        change_of(GroupSet, changes, topic="orders", group="g")
    assert said in str(caught.value)


def test_a_word_that_is_not_one_of_the_choices_is_told_which_there_are() -> None:
    with pytest.raises(BadRequest, match="it can be 'refuse' or 'dead_letter'"):
        change_of(TopicSet, {"over_limit": "drop"}, name="orders")
    with pytest.raises(BadRequest, match="body_size_max is 'big'"):
        checked(TopicSettings(body_size_max="big"))  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="earliest, latest, sequence, time"):
        make_start(Start(at="future"))  # type: ignore[arg-type]


def test_right_settings_pass() -> None:
    wanted = change_of(GroupSet, {"rate": 0, "retry": "power"}, topic="orders", group="g")

    assert wanted == GroupSet(topic="orders", group="g", rate=0, retry="power")
    assert checked(TopicSettings()) == TopicSettings()
