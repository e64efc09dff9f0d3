"""Settings with mistakes are told by name, before a server sees them (J13)."""

from typing import Any

import pytest

import ternmq
from ternmq.client.admin.settings import change_of, checked
from ternmq.client.model.start import make_start
from ternmq.core.errors import BadRequest
from ternmq.testing import node
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


async def test_a_mistake_does_not_cost_the_connection_and_a_consumers_limit_is_checked() -> None:
    """J13, R12: who shares the connection does not notice; no group gets an impossible limit."""
    async with (
        node() as url,
        ternmq.connect(url, app="test") as mq,
        mq.consumer("orders", group="g", attempts_max=3) as consumer,
    ):
        with pytest.raises(BadRequest):
            await mq.admin.set_group("orders", "g", rate="fast")
        with pytest.raises(BadRequest, match="attempts_max must be 0"):
            await mq.consumer("orders", group="g", attempts_max=-2).start()
        [group] = await mq.admin.groups("orders", "g")
        assert (group.settings.attempts_max, len(group.members)) == (3, 1)
        await mq.send("orders", b"x")
        (await anext(consumer)).ack()


async def test_a_limit_of_a_starting_consumer_binds_its_lanes_and_not_when_it_comes_back() -> None:
    """R12: given by a starting consumer; the last one wins, and coming back is not starting."""
    async with node() as url, ternmq.connect(url, app="test") as mq:
        await mq.send("orders", b"x")
        async with mq.consumer("orders", group="g") as consumer:
            (await anext(consumer)).reject("bad")
            await consumer.flush()
        [letters] = await mq.admin.open_dead_letters("g")
        await mq.admin.resend_dead_letters("g", [letters])
        async with mq.consumer("orders", group="g", attempts_max=1) as consumer:
            message = await anext(consumer)
            message.retry(reason="again")
            await consumer.flush()
            lines = {line.lane: line for line in await mq.admin.ledger("orders", "g")}
            assert lines["private"].dead == 1

            await mq.admin.set_group("orders", "g", attempts_max=5)
            cluster = mq.cluster
            link = cluster.broker((await cluster.some_masters())[0])
            assert link.connection is not None
            link.connection.abort()
            await mq.send("orders", b"y")
            (await anext(consumer)).ack()
            [group] = [g for g in await mq.admin.groups("orders", "g") if g.ledger.lane == "topic"]
            assert group.settings.attempts_max == 5
