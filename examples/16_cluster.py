"""A cluster on this machine: two broker groups, one topic on both of them.

    python examples/16_cluster.py

Shows: `tern cluster`, where messages go, and a ledger of every broker group. Needs no node.
"""

import asyncio
import subprocess
import sys
import tempfile

import ternmq

TOPIC = "example.cluster"
TERN = [sys.executable, "-m", "ternmq.cli.main"]


def start(folder: str) -> "tuple[subprocess.Popen[str], str]":
    """Try other ports until nobody else has them."""
    for base in range(7800, 9800, 10):
        command = [*TERN, "cluster", "--groups", "2", "--data-dir", folder, "--ports", str(base)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        if line.startswith("ready "):
            return process, line.split()[1]
        process.communicate()
    sys.exit("no free ports were found")


async def main(url: str) -> None:
    async with ternmq.connect(url, app="shop") as mq:
        stored: dict[str, int] = {}
        for number in range(10):
            receipts = await mq.send_many(TOPIC, [b"order %d" % number] * 100)
            group = receipts[0].broker_group
            stored[group] = stored.get(group, 0) + len(receipts)
        print("stored ", ", ".join(f"{group}: {stored[group]}" for group in sorted(stored)))

        got = 0
        async with mq.consumer(TOPIC, group="billing") as consumer:
            async for batch in consumer.batches():
                got += len(batch)
                batch.ack()
                if got == 1_000:
                    break
            await consumer.flush()
        print(f"got     {got} of 1000 messages")
        for line in await mq.admin.ledger(TOPIC, "billing"):
            print(f"ledger  {line.broker_group}: total {line.total} = acked {line.acked}")


with tempfile.TemporaryDirectory() as folder:
    cluster, url = start(folder)
    print("ready  ", url)
    asyncio.run(main(url))
    cluster.terminate()
    cluster.communicate()
