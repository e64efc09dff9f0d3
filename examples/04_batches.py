"""The fast way: many messages per call, in both directions, no Python per message.

    python examples/04_batches.py

Shows: `send_many`, its lazy receipt, `Outgoing`, `batches`, `to_arrow` (where pyarrow is there).
"""

import asyncio
import os

import ternmq

URL = os.environ.get("TERN_URL", "tern://127.0.0.1:7700")
TOPIC = "example.batches"
COUNT = 100_000


async def main() -> None:
    async with ternmq.connect(URL, app="sensors") as mq:
        bodies = [b"reading %06d" % number for number in range(COUNT)]
        receipt = await mq.send_many(TOPIC, bodies)
        print(f"stored  {len(receipt)} messages, failures: {receipt.failures}")
        row = receipt[7].sequence - receipt[0].sequence  # Worked out when asked for.
        print(f"row 7   is {row} after row 0")

        # Rows that differ in more than the body.
        await mq.send_many(
            TOPIC, [ternmq.Outgoing(body=b"", key="a", tag="x"), ternmq.Outgoing(body=b"", key="")]
        )

        seen = size = 0
        async with mq.consumer(TOPIC, group="archive", prefetch=20_000) as consumer:
            async for batch in consumer.batches():
                seen += len(batch)
                size += sum(map(len, batch.bodies))
                batch.ack()
                if seen == COUNT + 2:
                    print(f"last    keys {[message.key for message in batch[-2:]]}")
                    show_arrow(batch)
                    break
        print(f"got     {seen} messages, {size} bytes")
        await mq.admin.delete_topic(TOPIC)


def show_arrow(batch: ternmq.MessageBatch) -> None:
    try:
        table = batch.to_arrow()
    except ImportError:
        print("arrow   pip install pyarrow to see this part")
    else:
        print(f"arrow   columns {table.schema.names}")


asyncio.run(main())
