"""What becomes of a message that cannot be handled: again later, or never again.

    python examples/05_retry_and_reject.py

Shows: `retry`, `attempt`, `reject`, awaiting a settlement, the ledger, reading the dead letters.
"""

import asyncio
import os

import ternmq

URL = os.environ.get("TERN_URL", "tern://127.0.0.1:7700")
TOPIC = "example.retry"


async def main() -> None:
    async with ternmq.connect(URL, app="shop") as mq:
        await mq.send_many(TOPIC, [b"good", b"flaky", b"bad"])
        async with mq.consumer(TOPIC, group="example-retry") as consumer:
            open_messages = 3
            async for message in consumer:
                what = message.body.decode()
                if what == "flaky" and message.attempt < 3:
                    print(f"retry   {what} after attempt {message.attempt}")
                    message.retry(after=0.1, reason="the bank does not answer")
                    continue
                if what == "bad":
                    # Awaiting it means: the dead letter is stored and the original is marked.
                    await message.reject("not an order")
                    print(f"reject  {what}")
                else:
                    message.ack()
                    print(f"ack     {what} at attempt {message.attempt}")
                open_messages -= 1
                if not open_messages:
                    break
        (line,) = await mq.admin.ledger(TOPIC, "example-retry")
        print(f"ledger  total {line.total} = acked {line.acked} + dead {line.dead}")
        async for letter in mq.read("%dead.example-retry"):  # Kept with where it came from.
            why, where = letter.properties["%reason"], letter.properties["%topic"]
        print(f"dead    {letter.body!r} of {where!r}: {why!r}")
        await mq.admin.delete_topic(TOPIC)


asyncio.run(main())
