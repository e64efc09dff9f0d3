"""An application that uses a cluster while it is upgraded, by the public client of any release.

    python -m tests.integration.cluster.upgrade_client URL NAME LOG

Sends to the topic `orders` in every way (alone, as a list, with an order key, for later), consumes
in the group `work`, and in the ordered group `in-order`, and writes down `stored BODY`, `later
BODY`, `got GROUP BODY`. SIGTERM: it sends no more; a second one ends it. Imports nothing but
`ternmq`, so that it runs on the sources of a release of before.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import ternmq

TOPIC = "orders"
PAUSE_S = 0.02


async def taken(send: Callable[[], Awaitable[Any]]) -> Any:
    """Again while nobody takes it: certainly not stored."""
    while True:
        try:
            return await send()
        except ternmq.ReadOnly:
            await asyncio.sleep(0.1)


class UpgradeClient:
    """The application."""

    def __init__(self, mq: ternmq.Client, name: str, log: TextIO) -> None:
        self._mq = mq
        self._name = name
        self._log = log
        self.stop = asyncio.Event()

    def note(self, *words: str) -> None:
        self._log.write(" ".join(words) + "\n")
        self._log.flush()

    async def send_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for way in (self._alone, self._list, self._keyed, self._later):
                group.create_task(way())

    async def _alone(self) -> None:
        number = 0
        while not self.stop.is_set():
            body = f"{self._name}.alone.{number}"
            await taken(partial(self._mq.send, TOPIC, body.encode()))
            self.note("stored", body)
            number += 1
            await asyncio.sleep(PAUSE_S)

    async def _list(self) -> None:
        number = 0
        while not self.stop.is_set():
            bodies = [f"{self._name}.list.{number}.{row}" for row in range(10)]
            sent = await taken(partial(self._mq.send_many, TOPIC, [b.encode() for b in bodies]))
            assert not sent.failures, sent.failures
            for body in bodies:
                self.note("stored", body)
            number += 1
            await asyncio.sleep(5 * PAUSE_S)

    async def _keyed(self) -> None:
        number = 0
        while not self.stop.is_set():
            body = f"{self._name}.keyed.{number}"
            send = partial(self._mq.send, "keyed", body.encode(), order_key=self._name)
            await taken(send)
            self.note("stored", body)
            number += 1
            await asyncio.sleep(PAUSE_S)

    async def _later(self) -> None:
        number = 0
        while not self.stop.is_set():
            body = f"{self._name}.later.{number}"
            await taken(partial(self._mq.send, TOPIC, body.encode(), delay=1 + number % 5))
            self.note("stored", body)
            number += 1
            await asyncio.sleep(5 * PAUSE_S)

    async def consume(self, topic: str, group: str) -> None:
        async with self._mq.consumer(topic, group=group) as consumer:
            async for message in consumer:
                self.note("got", group, message.body.decode())
                message.ack()


async def main(url: str, name: str, log: TextIO) -> None:
    over = asyncio.Event()
    async with ternmq.connect(url, app="shop", delivery_timeout=120) as mq:
        client = UpgradeClient(mq, name, log)

        def told() -> None:
            (over if client.stop.is_set() else client.stop).set()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told)
        groups = [
            asyncio.create_task(client.consume(topic, group))
            for topic, group in ((TOPIC, "work"), ("keyed", "in-order"))
        ]
        sending = asyncio.create_task(client.send_all())
        ends = asyncio.create_task(over.wait())
        await asyncio.wait({*groups, sending}, return_when=asyncio.FIRST_COMPLETED)
        sending.result()
        client.note("ended")
        await asyncio.wait({*groups, ends}, return_when=asyncio.FIRST_COMPLETED)
        for group in groups:
            if group.done():
                group.result()
            group.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await group


if __name__ == "__main__":
    url, name, path = sys.argv[1:]
    with Path(path).open("w", encoding="ascii") as log:
        asyncio.run(main(url, name, log))
