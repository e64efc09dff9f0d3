"""The same names without `await`, for programs that have no event loop: scripts, Flask, Celery.

    python examples/02_sync.py

Shows: `ternmq.sync`, JSON bodies by `codec=`, `message.value`, use from several threads.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import ternmq.sync

URL = os.environ.get("TERN_URL", "tern://127.0.0.1:7700")
TOPIC = "example.sync"


def main() -> None:
    with ternmq.sync.connect(URL, app="shop", codec="json") as mq:
        # One client serves all threads; sends that overlap share a batch and a disk flush.
        with ThreadPoolExecutor(4) as pool:
            receipts = list(pool.map(lambda n: mq.send(TOPIC, {"order": n}), range(8)))
        print(
            f"stored  {len(receipts)} messages, last sequence {max(r.sequence for r in receipts)}"
        )

        orders = []
        with mq.consumer(TOPIC, group="billing") as consumer:
            for message in consumer:
                orders.append(message.value["order"])
                message.ack()
                if len(orders) == 8:
                    break
        print(f"got     orders {sorted(orders)}")
        mq.admin.delete_topic(TOPIC)


main()
