"""A producer process that stops at a step of a transaction and waits to be killed.

python -m tests.integration.transactions.stopping_producer URL STEP WORK: the work is a file that is
written. Prints the transaction's id when it has reached the step. Steps: half, work, commit, and
committing-N, which kills itself N turns of the loop after it began to commit.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import ternmq


async def main(url: str, step: str, work: Path) -> None:
    async with ternmq.connect(url, app="shop") as mq:
        mq.transaction_checker(lambda question: "unknown")
        tx = mq.transaction()
        await tx.send("orders", b"paid", key=work.name)
        await tx.send_many("bills", [b"1", b"2"])
        if step != "half":
            await asyncio.to_thread(work.write_text, "done", encoding="utf-8")
        if step == "commit":
            await tx.commit()
        sys.stdout.write(tx.id + "\n")
        sys.stdout.flush()
        if step.startswith("committing"):
            committing = asyncio.ensure_future(tx.commit())
            for _ in range(int(step.split("-")[1])):
                await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGKILL)
            await committing
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
