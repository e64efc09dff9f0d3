"""A broker that hangs: every send ends at its own deadline, and says what may be stored."""

import asyncio
import os
import signal

import ternmq
from ternmq.core.errors import SendUnknown, Unavailable
from tests.integration.processes import Node

TIMEOUT_S = 2.0
WAVES = 8  # One after the other they would wait for 16 s.


async def test_sends_with_an_order_key_end_at_their_own_deadline(node: Node) -> None:
    """Q1: of a node that is stopped the first may be stored, those behind it are certainly not;
    what is stored in the end is in order, and every id can be looked for."""
    loop = asyncio.get_running_loop()
    longest = 0.0

    async def send(mq: ternmq.Client, body: bytes) -> BaseException | ternmq.Receipt:
        nonlocal longest
        since = loop.time()
        try:
            return await mq.send("orders", body, order_key="k")
        except ternmq.TernError as error:
            return error
        finally:
            longest = max(longest, loop.time() - since)

    async with ternmq.connect(node.url, delivery_timeout=TIMEOUT_S) as mq:
        first = await mq.send("orders", b"first", order_key="k")
        os.kill(node.pid, signal.SIGSTOP)
        try:
            tasks = []
            for wave in range(WAVES):
                tasks += [asyncio.create_task(send(mq, b"%d" % (wave * 10 + n))) for n in range(10)]
                await asyncio.sleep(0.05)
            answers = await asyncio.gather(*tasks)
        finally:
            os.kill(node.pid, signal.SIGCONT)
        last = await mq.send("orders", b"last", order_key="k")
        unknown = [one for one in answers if isinstance(one, SendUnknown)]
        found = [
            finding.message.sequence
            for error in unknown
            for finding in await mq.find("orders", id=error.ids[0])
        ]
        stored = [message.body async for message in mq.read("orders")]

    assert longest < 2.5 * TIMEOUT_S
    assert {type(answer) for answer in answers} <= {SendUnknown, Unavailable}
    assert any(isinstance(answer, Unavailable) for answer in answers)
    assert first.sequence == 0
    assert last.sequence == len(stored) - 1
    assert sorted(found) == list(range(1, last.sequence))
    numbers = [int(body) for body in stored[1:-1]]
    assert numbers == sorted(set(numbers))
    refused = {at for at, answer in enumerate(answers) if isinstance(answer, Unavailable)}
    assert not refused & set(numbers)
