"""Read a topic like a file: by sequence or by time, any number of times, nothing to ack.

    python examples/06_read_without_a_group.py

Shows: `read` with start and end, by time, and following what comes.
"""

import asyncio
import os
from datetime import UTC, datetime

import ternmq

URL = os.environ.get("TERN_URL", "tern://127.0.0.1:7700")
TOPIC = "example.read"


async def main() -> None:
    async with ternmq.connect(URL, app="reports") as mq:
        await mq.send_many(TOPIC, [b"one", b"two", b"three"])
        await asyncio.sleep(0.005)  # Times are kept in milliseconds.
        noon = datetime.now(UTC)
        await mq.send(TOPIC, b"four")

        everything = [message.body async for message in mq.read(TOPIC)]
        print(f"all     {everything}")
        middle = [message.body async for message in mq.read(TOPIC, start=1, end=3)]
        print(f"1 to 3  {middle}")
        later = [message.body async for message in mq.read(TOPIC, start=noon)]
        print(f"later   {later}")

        async def follow() -> None:
            async for message in mq.read(TOPIC, start="latest", follow=True):
                print(f"follow  {message.body!r} at sequence {message.sequence}")
                return

        following = asyncio.create_task(follow())
        while not following.done():  # 'latest' is decided at the broker; send until it is seen.
            await mq.send(TOPIC, b"five")
            await asyncio.sleep(0.05)
        await mq.admin.delete_topic(TOPIC)


asyncio.run(main())
