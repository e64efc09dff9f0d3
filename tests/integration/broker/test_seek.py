"""SEEK by bytes, which a stream limited by bytes asks: the real broker in this process."""

import os

import ternmq
from ternmq.testing import node
from ternmq.wire.messages.groups import Start
from ternmq.wire.messages.read import Seek, Sought
from ternmq.wire.numbers import Command


async def test_a_broker_tells_where_so_many_bytes_end() -> None:
    async with node() as url, ternmq.connect(url, app="test") as mq:
        for _ in range(10):
            await mq.send_many("orders", [os.urandom(1_000) for _ in range(10)])
        link = mq.cluster.broker((await mq.cluster.some_masters())[0])

        async def ask(first: int, size: int) -> Sought:
            seek = Seek(topic="orders", start=Start(at="sequence", value=first), size=size)
            return await mq.cluster.ask(link, Command.SEEK, seek, Sought)

        some, one, all_ = await ask(0, 35_000), await ask(0, 1), await ask(5, 10**9)

    assert (some.sequence, one.sequence, all_.sequence) == (30, 10, 100)
    assert 30_000 < some.size < 35_000 and 95_000 < all_.size < 105_000
    assert (all_.first, all_.end) == (0, 100)
