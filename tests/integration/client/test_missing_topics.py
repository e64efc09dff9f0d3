"""Topics that are not there, and consumers that are closed: what an application is told."""

import pytest
from structlog.testing import capture_logs

import ternmq
from ternmq.testing import node


async def test_a_consumer_makes_its_topic_and_says_so_or_refuses_where_it_is_told_to() -> None:
    async with node() as url, ternmq.connect(url, app="test") as mq:
        await mq.send("orders", b"1")
        with pytest.raises(ternmq.TopicNotFound, match="'order', and create=False"):
            await mq.consumer(["orders", "order"], group="g", create=False).start()
        assert [topic.name for topic in await mq.admin.topics()] == ["orders"]

        with capture_logs() as logs:
            for topic in ("orders", "order"):
                async with mq.consumer(topic, group="g"):
                    pass
        assert [line["topic"] for line in logs if "is the name right?" in line["event"]] == [
            "order"
        ]


async def test_an_ack_after_the_consumer_was_closed_says_what_becomes_of_the_message() -> None:
    async with node() as url, ternmq.connect(url, app="test") as mq:
        await mq.send("orders", b"1")
        async with mq.consumer("orders", group="g") as consumer:
            message = await anext(consumer)
        with pytest.raises(ternmq.Closed, match=r"is closed: what it had not settled.*comes again"):
            await message.ack()
        async with mq.consumer("orders", group="g") as consumer:
            assert (await anext(consumer)).body == b"1"
