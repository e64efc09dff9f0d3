"""Consumers of one group share a backlog at once; one that leaves gives back what it holds.

    python examples/07_many_consumers.py

Shows: no partitions to assign. Four consumers join, one of them leaves with work undone, the
others take it over, and the ledger proves that nothing was skipped.
"""

import asyncio
import os
from collections import Counter

import ternmq

URL = os.environ.get("TERN_URL", "tern://127.0.0.1:7700")
TOPIC = "example.many"
COUNT = 2_000


async def main() -> None:
    done: Counter[str] = Counter()
    handled: set[int] = set()

    async def work(mq: ternmq.Client, name: str, leave_after: int) -> None:
        async with mq.consumer(TOPIC, group="workers", prefetch=100) as consumer:
            async for message in consumer:
                await asyncio.sleep(0.001)  # The work.
                handled.add(message.sequence)
                done[name] += 1
                message.ack()
                if done[name] == leave_after or len(handled) == COUNT:
                    return  # Un-acked messages go back to the group right here.

    async with ternmq.connect(URL, app="workers") as mq:
        await mq.send_many(TOPIC, [b"job"] * COUNT)
        workers = [asyncio.create_task(work(mq, name, COUNT)) for name in ("anna", "ben", "cleo")]
        await work(mq, "dora", leave_after=50)
        print(f"dora left after {done['dora']}")
        await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)

        print(f"handled {len(handled)} different messages, shared: {min(done.values()) > 0}")
        (line,) = await mq.admin.ledger(TOPIC, "workers")
        print(f"ledger  total {line.total} = ready {line.ready} + acked {line.acked}")
        await mq.admin.delete_topic(TOPIC)


asyncio.run(main())
