"""Delayed messages belong to their topic and not to its name; and what `confirm` says of them."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import ternmq
from ternmq import CancelResult
from ternmq.core.errors import BadRequest, NotConfirmed
from ternmq.wire.messages.groups import Start
from tests.integration.delay.test_delays import arrived, pending
from tests.integration.processes import Node, NodeFactory
from tests.waiting import until

TOPIC = "orders"
BEFORE_S = 1.5


@pytest.mark.parametrize("when", ["at once", "after kill -9"])
async def test_what_was_for_a_deleted_topic_does_not_come_into_the_new_one_of_its_name(
    when: str, node: Node
) -> None:
    """D7, Q7: dropped when it is due and accounted for; others of its delay server come."""
    at = datetime.now(UTC) + timedelta(seconds=BEFORE_S)
    async with ternmq.connect(node.url) as mq:
        await mq.send_many(TOPIC, [b"old"] * 3, at=at)
        await mq.send("gone", b"old", at=at)
        await mq.send("other", b"other", at=at)
        await mq.admin.delete_topic(TOPIC)
        await mq.admin.delete_topic("gone")
        if when == "after kill -9":
            node.kill()
            node.start()
    async with ternmq.connect(node.url) as mq:
        await mq.send(TOPIC, b"new", delay=BEFORE_S)

        assert await arrived(mq, "other", 1) == ["other"]
        assert await arrived(mq, TOPIC, 1) == ["new"]

        async def ended() -> bool:
            lines = await mq.admin.delays.ledger()
            assert all(
                one.accepted == one.pending + one.dispatched + one.cancelled for one in lines
            )
            return sum(one.cancelled for one in lines) == 4 and not sum(
                one.pending for one in lines
            )

        await until(ended, "the old ones are cancelled with their topic")
        assert await arrived(mq, TOPIC, 1) == ["new"]
        assert "gone" not in [topic.name for topic in await mq.admin.topics()]


async def test_in_a_cluster_the_registry_says_that_a_topic_was_deleted(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """The delay server was away while the topic was deleted and made again."""
    meta = node_factory.meta_server(f"sqlite:///{tmp_path}/registry.db")
    node_factory.broker_server(meta.url, "east")
    delay = node_factory.delay_server(meta)
    async with ternmq.connect(meta.url) as mq:
        await until(lambda: _knows_delay(mq))
        await mq.send(TOPIC, b"old", delay=BEFORE_S)
        delay.kill()
        await mq.admin.delete_topic(TOPIC)
        await mq.admin.create_topic(TOPIC)
        await asyncio.to_thread(delay.start)
        await until(lambda: _knows_delay(mq))
        await mq.send(TOPIC, b"new", delay=0.1)
        assert await arrived(mq, TOPIC, 1) == ["new"]

        async def dropped() -> bool:
            lines = await mq.admin.delays.ledger()
            return sorted((one.dispatched, one.cancelled) for one in lines) == [(0, 1), (1, 0)]

        await until(dropped)
        assert await arrived(mq, TOPIC, 1) == ["new"]


async def _knows_delay(mq: ternmq.Client) -> bool:
    await mq.cluster.refresh()
    return bool(mq.cluster.masters("delay"))


async def test_confirm_of_a_delayed_message_answers_by_what_became_of_it(node: Node) -> None:
    """D13: never by another message, which has the same sequence in the broker."""
    async with ternmq.connect(node.url) as mq:
        await mq.admin.create_topic(TOPIC)
        await mq.admin.create_group(TOPIC, "g", Start())
        await mq.send_many(TOPIC, [b"for now"] * 3)
        async with mq.consumer(TOPIC, group="g") as consumer:
            for _ in range(3):
                (await anext(consumer)).ack()
            await consumer.flush()
            later = await mq.send(TOPIC, b"later", delay=3600)
            soon = await mq.send(TOPIC, b"soon", delay=1)
            both = await mq.send_many(TOPIC, [b"a", b"b"], delay=3600)

            with pytest.raises(NotConfirmed, match="not due yet") as caught:
                await mq.confirm(later, "g", timeout=5)
            assert caught.value.state == "waiting"
            assert await mq.cancel(later) == CancelResult.CANCELLED
            with pytest.raises(NotConfirmed, match="cancelled") as caught:
                await mq.confirm(later, "g")
            assert caught.value.state == "cancelled"
            await mq.cancel(both[1])
            with pytest.raises(NotConfirmed) as caught:
                await mq.confirm(both, "g", timeout=0)
            assert (caught.value.state, len(caught.value.details["missing"])) == ("several", 2)

            waiting = asyncio.create_task(mq.confirm(soon, "g"))
            message = await anext(consumer)
            assert message.id == soon.id
            with pytest.raises(NotConfirmed) as caught:
                await mq.confirm(soon, "g", timeout=0.3)
            assert caught.value.state == "open"
            assert not waiting.done()
            message.ack()
            await waiting
        assert (await pending(mq, TOPIC))[2] == 1


async def test_confirm_of_what_is_no_receipt_says_what_it_takes(shared_node: Node) -> None:
    async with ternmq.connect(shared_node.url) as mq:
        with pytest.raises(BadRequest, match="what send or send_many returned"):
            await mq.confirm("01M7FCD80ZA6JWJ00W00000000", "g")  # type: ignore[arg-type]
