"""Makes the data directory of a node, for a release that later ones must be able to open.

    PYTHONPATH=<that release>/src python tests/golden/make_node.py <folder>

Uses only what every release has. The node is killed (`os._exit`) in the middle of its life, so that
opening it is a recovery, too. What is in it is in `test_node_directory.py`, which reads it all.
"""

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import ternmq
from ternmq.testing.clock import TurnedClock
from ternmq.testing.node import node

NOW_MS = 1_800_000_000_000
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)


async def consume(mq: ternmq.Client) -> None:
    """Ten acked, one retried, one rejected, three in flight when the node is killed."""
    async with mq.consumer("orders", group="billing", start="earliest") as messages:
        for at in range(12):
            message = await anext(messages)
            if at == 10:
                await message.retry(after=3600)
            elif at == 11:
                await message.reject("no such customer")
            else:
                await message.ack()


async def send(mq: ternmq.Client) -> None:
    for at in range(20):
        await mq.send(
            "orders",
            b"order %d" % at,
            key=f"k{at}",
            tag="even" if at % 2 == 0 else "odd",
            properties={"amount": at, "city": "Bern"},
        )
    await mq.send_many("bulk", [b"x" * 300 + b"%d" % at for at in range(200)])
    for at in range(6):
        await mq.send("keyed", b"%d" % at, order_key=f"o{at % 2}")


async def send_later(mq: ternmq.Client) -> None:
    for hours in (1, 30, 200):
        await mq.send("later", b"in %d hours" % hours, at=NOW + timedelta(hours=hours))
    gone = await mq.send("later", b"cancelled", at=NOW + timedelta(hours=2))
    await mq.cancel(gone)
    moved = await mq.send("later", b"moved to 3 hours", at=NOW + timedelta(hours=90))
    await mq.reschedule(moved, at=NOW + timedelta(hours=3))


async def transact(mq: ternmq.Client) -> None:
    mq.transaction_checker(lambda question: "commit")
    async with mq.transaction() as transaction:
        await transaction.send("paid", b"committed")
    try:
        async with mq.transaction() as transaction:
            await transaction.send("paid", b"rolled back")
            raise InterruptedError
    except InterruptedError:
        pass
    staged = mq.detached("open-one", expires=timedelta(days=20))
    await staged.send("paid", b"committed by a later release")


async def main(folder: Path) -> None:
    async with node(data_dir=folder, clock=TurnedClock(NOW_MS)) as url:
        async with ternmq.connect(url, app="shop") as mq:
            await send(mq)
            await consume(mq)
            await send_later(mq)
            await transact(mq)
            await mq.admin.create_topic("deleted")
            await mq.send("deleted", b"gone")
            await mq.admin.delete_topic("deleted")
        await asyncio.sleep(7)  # A checkpoint; what follows is after it.
        async with ternmq.connect(url, app="shop") as mq:
            await mq.send("orders", b"after the checkpoint", key="last")
            await mq.send("later", b"after the checkpoint", at=NOW + timedelta(hours=4))
        await asyncio.sleep(1.5)
        sys.stderr.write("killed\n")
        os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
