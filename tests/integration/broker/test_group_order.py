"""The order of a group as a setting: consumers agree with it, or are told why they cannot join."""

import pytest

import ternmq
from ternmq.core.errors import BadRequest, FilterConflict
from tests.integration.processes import Node, tern


async def joins(mq: ternmq.Client, topic: str, *, ordered: bool) -> None:
    """One message of the group, acked."""
    await mq.send(topic, b"x", order_key="k")
    async with mq.consumer(topic, group="g", ordered=ordered, start="earliest") as consumer:
        async for message in consumer:
            await message.ack()
            return


async def test_a_group_that_is_set_to_an_order_takes_only_such_consumers(
    shared_node: Node,
) -> None:
    async with ternmq.connect(shared_node.url, app="order-set") as mq:
        await mq.admin.create_topic("order-set")
        await mq.admin.create_group("order-set", "g")
        await mq.admin.set_group("order-set", "g", order="keys")
        with pytest.raises(FilterConflict, match="is set to order 'keys'"):
            await joins(mq, "order-set", ordered=False)
        await joins(mq, "order-set", ordered=True)

        await mq.admin.set_group("order-set", "g", order="none")
        with pytest.raises(FilterConflict, match="is set to order 'none'"):
            await joins(mq, "order-set", ordered=True)
        await mq.admin.set_group("order-set", "g", order="")
        await joins(mq, "order-set", ordered=True)


async def test_an_order_that_its_consumers_do_not_have_is_refused(shared_node: Node) -> None:
    async with ternmq.connect(shared_node.url, app="order-held") as mq:
        await mq.admin.create_topic("order-held")
        await mq.send("order-held", b"x", order_key="k")
        async with mq.consumer("order-held", group="g", ordered=True, start="earliest") as consumer:
            async for message in consumer:
                await message.ack()
                break
            with pytest.raises(BadRequest, match="stop them first"):
                await mq.admin.set_group("order-held", "g", order="none")
            await mq.admin.set_group("order-held", "g", order="keys")
        with pytest.raises(BadRequest, match="exclude each other"):
            await mq.admin.set_group("order-held", "g", priority=True)
        with pytest.raises(BadRequest, match="it is 'keys', 'none'"):
            await mq.admin.set_group("order-held", "g", order="sideways")


async def test_the_order_of_a_group_is_there_after_a_kill(node: Node) -> None:
    async with ternmq.connect(node.url, app="order-kept") as mq:
        await mq.admin.create_topic("kept")
        await mq.admin.create_group("kept", "g")
    assert tern("group", "set", "kept", "g", "--order", "keys", url=node.url).code == 0
    node.kill()
    node.start()

    async with ternmq.connect(node.url, app="order-kept") as mq:
        with pytest.raises(FilterConflict):
            await joins(mq, "kept", ordered=False)
        await joins(mq, "kept", ordered=True)
