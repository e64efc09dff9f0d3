"""Send three messages, consume them in a group, and look at the ledger.

    python examples/01_send_and_consume.py

Shows: `connect`, `send` with a key and properties, the receipt, `consumer`, `ack`, the ledger.
"""

import asyncio
import os

import ternmq

URL = os.environ.get("TERN_URL", "tern://127.0.0.1:7700")
TOPIC = "example.paid"


async def main() -> None:
    async with ternmq.connect(URL, app="shop") as mq:
        for number in range(3):
            receipt = await mq.send(
                TOPIC,
                f"order {number} is paid".encode(),
                key=f"o-{number}",
                properties={"amount": 10 * number},
            )
            # The message is on disk now; the receipt says where.
            print(f"stored  sequence {receipt.sequence} in broker group {receipt.broker_group}")

        async with mq.consumer(TOPIC, group="billing") as consumer:
            async for message in consumer:
                text, amount = message.body.decode(), message.properties["amount"]
                print(f"got     {text!r} key={message.key} amount={amount!r}")
                message.ack()
                if message.sequence == 2:
                    break
        # Leaving the block told the broker what is acked and gave back the rest.

        (line,) = await mq.admin.ledger(TOPIC, "billing")
        print(f"ledger  total {line.total} = ready {line.ready} + acked {line.acked}")
        await mq.admin.delete_topic(TOPIC)


asyncio.run(main())
