"""While a broker group takes no decisions, or nobody leads it, calls end in time or go on."""

import asyncio
import time
from pathlib import Path

import pytest

import ternmq
from ternmq.wire.messages.groups import Start
from tests.integration.broker_pair import GROUP, make_pair
from tests.integration.processes import NodeFactory
from tests.waiting import until


@pytest.mark.long
async def test_decisions_of_a_read_only_master_end_with_what_to_do_and_count_later(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path)
    async with ternmq.connect(pair.url, app="test") as mq:
        receipt = await mq.send("orders", b"one")
        async with mq.consumer("orders", group="old") as consumer:
            (await anext(consumer)).ack()
            await consumer.flush()
        master = await asyncio.to_thread(pair.master)
        replica = await asyncio.to_thread(pair.replica)
        replica.kill()
        await until(lambda: "no messages are taken" in master.stderr_text(), "read-only")

        began = time.monotonic()
        told = await asyncio.gather(
            mq.admin.set_group("orders", "old", attempts_max=3),
            mq.admin.reset_group("orders", "old", Start(at="earliest")),
            mq.confirm(receipt, "old", timeout=3),
            return_exceptions=True,
        )
        assert time.monotonic() - began < 9
        for error, kind in zip(
            told, (ternmq.Unavailable,) * 2 + (ternmq.NotConfirmed,), strict=True
        ):
            assert isinstance(error, kind), error
            assert 'replica_lost = "continue"' in str(error)
        starting = asyncio.create_task(_first(mq, "orders", "new"))
        await asyncio.sleep(6)
        assert not starting.done(), "it waits, as a running one would"
        await asyncio.to_thread(replica.start)
        assert await starting == b"one"

        await mq.send("orders", b"two")
        [group] = await mq.admin.groups("orders", "old")
        assert group.settings.attempts_max == 3, "it came into force by itself"


@pytest.mark.long
async def test_who_comes_while_nobody_leads_waits_for_the_next_master(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    pair = await asyncio.to_thread(
        make_pair, node_factory, tmp_path, settings={"TERN_REPLICA_LOST": "continue"}
    )
    async with ternmq.connect(pair.url, app="test", request_timeout=20) as mq:
        await mq.send("orders", b"one")
        (await asyncio.to_thread(pair.master)).kill()

        first = asyncio.create_task(_first(mq, "orders", "new"))
        assert [message.body async for message in mq.read("orders")] == [b"one"]
        assert (await mq.admin.seek_all("orders", Start()))[GROUP].end == 1
        assert await first == b"one"


async def _first(mq: ternmq.Client, topic: str, group: str) -> bytes:
    async with asyncio.timeout(40), mq.consumer(topic, group=group) as consumer:
        message = await anext(consumer)
        message.ack()
        return message.body
