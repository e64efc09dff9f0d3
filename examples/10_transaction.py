"""A message that becomes visible only when the work it belongs to is done.

tern up &
python examples/10_transaction.py
"""

import asyncio
import os

import ternmq

URL = os.environ.get("TERN_URL", "tern://127.0.0.1:7700")
paid: set[str] = set()  # Stands for a database that every instance of the application can ask.


async def main() -> None:
    async with ternmq.connect(URL, app="example-shop") as mq:

        @mq.transaction_checker
        async def check(question: ternmq.TransactionCheck) -> ternmq.Verdict:
            return ternmq.Verdict.COMMIT if question.key in paid else ternmq.Verdict.ROLLBACK

        async with mq.transaction() as tx:
            await tx.send("example.paid", b"order 1", key="o-1")  # Stored, seen by nobody.
            paid.add("o-1")  # The work; now the block ends, and the message is there.
        print(f"o-1: {tx.state}, sequence {tx.receipts[0].sequence}")

        async with mq.transaction() as tx:
            await tx.send("example.paid", b"order 2", key="o-2")
            raise ternmq.Rollback
        print(f"o-2: {tx.state}")

        try:
            async with mq.transaction(first_check=0.2, check_interval=0.2) as tx:
                await tx.send("example.paid", b"order 3", key="o-3")
                paid.add("o-3")
                raise ConnectionError("after the work: was it done or not?")
        except ConnectionError:
            print(f"o-3: {tx.state}; the broker asks the checker")
        async for message in mq.read("example.paid", follow=True):
            if message.key == "o-3":
                break
        print("o-3: committed by the checker")
        await mq.admin.delete_topic("example.paid")


asyncio.run(main())
