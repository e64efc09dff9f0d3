"""An order that is not paid in time is closed: a message for later, and taking it back.

    python examples/09_delay.py

Shows: `delay=`, the receipt's `due_at`, `cancel`, `reschedule`, `fire_now`, what waits, the ledger.
In a shop the delay would be 30 minutes; here it is seconds.
"""

import asyncio
import os
from datetime import timedelta

import ternmq

URL = os.environ.get("TERN_URL", "tern://127.0.0.1:7700")
TOPIC = "example.order.close"
UNPAID_FOR = timedelta(seconds=1)  # timedelta(minutes=30)


async def main() -> None:
    async with ternmq.connect(URL, app="shop") as mq:
        # Every order gets its closing message at once; it will be due unless somebody pays.
        closing = {
            order: await mq.send(TOPIC, order.encode(), key=order, delay=UNPAID_FOR)
            for order in ("o-1", "o-2", "o-3", "o-4")
        }
        due_at = closing["o-1"].due_at
        assert due_at is not None
        print(f"waiting {[row.key for row in await mq.admin.delays.rows(topic=TOPIC)]}")

        print(f"paid    o-2: {await mq.cancel(closing['o-2'])}")
        print(f"paid    o-2: {await mq.cancel(closing['o-2'].id)}")  # Asking again is safe.
        print(f"later   o-3: {await mq.reschedule(closing['o-3'], delay=UNPAID_FOR * 2)}")
        print(f"now     o-4: {await mq.fire_now(closing['o-4'])}")

        async with mq.consumer(TOPIC, group="example-closing") as consumer:
            for _ in range(3):
                message = await anext(consumer)
                early = message.key == "o-1" and message.stored_at < due_at
                print(f"close   {message.key}{' EARLY' if early else ''}")
                message.ack()
        print(f"too late o-1: {await mq.cancel(closing['o-1'])}")
        (line,) = await mq.admin.delays.ledger(TOPIC)
        while line.pending:  # A message may be here before its delay server has heard of it.
            await asyncio.sleep(0.05)
            (line,) = await mq.admin.delays.ledger(TOPIC)
        print(
            f"ledger  accepted {line.accepted} = pending {line.pending}"
            f" + dispatched {line.dispatched} + cancelled {line.cancelled}"
        )
        await mq.admin.delete_topic(TOPIC)


asyncio.run(main())
