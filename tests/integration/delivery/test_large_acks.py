"""A consumer that fails more rows than a broker settles in one turn of its loop."""

import ternmq
from ternmq.broker.acks.large_acks import SLICE
from ternmq.testing import node


async def test_a_consumer_that_fails_everything_and_leaves_has_failed_everything() -> None:
    """With the real broker: nothing comes again before its time."""
    rows = 3 * SLICE
    async with node() as url, ternmq.connect(url, app="test") as mq:
        await mq.send_many("orders", [b"x"] * rows)
        async with mq.consumer("orders", group="g") as consumer:
            held = 0
            async for message in consumer:
                message.retry(after=60 + held)
                held += 1
                if held == rows:
                    break

        [line] = await mq.admin.ledger(group="g")
        assert (line.waiting_retry, line.ready) == (rows, 0)
