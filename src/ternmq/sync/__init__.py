"""TernMQ without `await`: the names of `ternmq`, blocking.

    with ternmq.sync.connect("tern://127.0.0.1:7700", app="shop") as mq:
        receipt = mq.send("order.paid", b"...")
        with mq.consumer("order.paid", group="billing") as consumer:
            for message in consumer:
                message.ack()

Everything runs on one event loop in one background thread per process, started at the first
`connect` and again in a forked child. Clients may be used from any number of threads.

Most of this package is generated from `ternmq.client` by `scripts/make_sync.py` (`make sync`); the
loop thread, `client.py` and `consumer.py` are written by hand.
"""

from ternmq.sync.admin import Admin
from ternmq.sync.broadcast import Broadcast
from ternmq.sync.client import Client, connect
from ternmq.sync.consumer import Consumer
from ternmq.sync.delays import Delays
from ternmq.sync.detached import Detached
from ternmq.sync.detached_consumer import DetachedConsumer
from ternmq.sync.reader import Reader
from ternmq.sync.transaction import Transaction

__all__ = [
    "Admin",
    "Broadcast",
    "Client",
    "Consumer",
    "Delays",
    "Detached",
    "DetachedConsumer",
    "Reader",
    "Transaction",
    "connect",
]
