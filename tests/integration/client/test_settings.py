"""Settings with mistakes at a node: the connection lives on, limits bind (J13)."""

import pytest

import ternmq
from ternmq.core.errors import BadRequest
from ternmq.testing import node
from tests.integration.processes import Node


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
            links = mq.cluster
            link = links.broker((await links.some_masters())[0])
            assert link.connection is not None
            link.connection.abort()
            await mq.send("orders", b"y")
            (await anext(consumer)).ack()
            [group] = [g for g in await mq.admin.groups("orders", "g") if g.ledger.lane == "topic"]
            assert group.settings.attempts_max == 5


async def test_a_group_that_is_there_stays_as_it_is_where_that_is_fine(shared_node: Node) -> None:
    topic = "settings-exist-ok"
    async with ternmq.connect(shared_node.url, app="shop") as mq:
        await mq.send_many(topic, [b"1", b"2", b"3"])
        made = await mq.admin.create_group(topic, "billing", "latest", exist_ok=True)
        again = await mq.admin.create_group(topic, "billing", "earliest", exist_ok=True)

        assert made.ledger.start == again.ledger.start == 3
        with pytest.raises(ternmq.AlreadyExists):
            await mq.admin.create_group(topic, "billing")
        with pytest.raises(ternmq.BadRequest, match="exist_ok"):
            await mq.admin.create_group(topic, "billing", exist_ok="yes")  # type: ignore[arg-type]
