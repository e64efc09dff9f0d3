"""The load of a soak: producers and consumers that write down what they did, a process each.

    python -m tests.soak.clients produce URL LOG NAME
    python -m tests.soak.clients consume URL LOG NAME

A producer sends singly, in batches, with order keys, for later and in transactions; it writes
`stored TOPIC BODY` when a message is acknowledged. A consumer acks, sometimes after a retry, and
sometimes rejects; it writes `got TOPIC BODY`, and `rejected TOPIC BODY` when a reject is safe.
SIGTERM ends both in good order. What fails for a while is tried again; what nobody thought of ends
the process with its traceback.
"""

import asyncio
import contextlib
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TextIO

import ternmq

PLAIN, ORDERED, LATER, HALF = TOPICS = ("soak.plain", "soak.ordered", "soak.later", "soak.half")
GROUP = "soak"
IN_ORDER = "soak-in-order"
ROUND_S = 0.1
BATCH = 10
KEYS = 4
LATER_MAX_S = 20.0
DELIVERY_S = 300.0
UNCERTAIN = (ternmq.Unavailable, ternmq.ReadOnly, ternmq.SendUnknown, ternmq.NotMaster)
"""After these nothing is written down: the message may be there, and need not."""
EARLY_S = 0.01
"""A delayed message may come that much before its moment: two clocks are read."""


class Diary:
    """One line for each thing that is certain, written at once."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def note(self, what: str, topic: str, *bodies: bytes) -> None:
        self._file.write("".join(f"{what} {topic} {body.decode()}\n" for body in bodies))
        self._file.flush()


class SoakProducer:
    """Sends a little of everything, round after round."""

    def __init__(self, mq: ternmq.Client, diary: Diary, name: str) -> None:
        self._mq = mq
        self._diary = diary
        self._bodies = self._numbered(f"{name}.{time.time_ns()}")
        self._keys = [f"{name}-{number}" for number in range(KEYS)]
        self._undecided: set[str] = set()
        self._committed: set[str] = set()
        mq.transaction_checker(self._check)

    def _check(self, check: ternmq.TransactionCheck) -> ternmq.Verdict:
        if check.id in self._undecided:
            return ternmq.Verdict.UNKNOWN
        commits = check.id in self._committed
        return ternmq.Verdict.COMMIT if commits else ternmq.Verdict.ROLLBACK

    @staticmethod
    def _numbered(life: str) -> Iterator[bytes]:
        number = 0
        while True:
            yield f"{life}.{number}".encode()
            number += 1

    async def run(self, stop: asyncio.Event) -> None:
        kinds = (self._single, self._batch, self._ordered, self._later, self._half)
        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                group.create_task(self._forever(kind, stop))

    async def _forever(self, kind: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
        while not stop.is_set():
            with contextlib.suppress(*UNCERTAIN):
                await kind()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), ROUND_S)

    async def _single(self) -> None:
        body = next(self._bodies)
        await self._mq.send(PLAIN, body)
        self._diary.note("stored", PLAIN, body)

    async def _batch(self) -> None:
        bodies = [next(self._bodies) for _ in range(BATCH)]
        receipts = await self._mq.send_many(PLAIN, bodies)
        failed = {row for rows, _ in receipts.failures for row in rows}
        stored = [body for row, body in enumerate(bodies) if row not in failed]
        self._diary.note("stored", PLAIN, *stored)

    async def _ordered(self) -> None:
        key, body = random.choice(self._keys), next(self._bodies)
        body = f"{key}/".encode() + body
        await self._mq.send(ORDERED, body, order_key=key)
        self._diary.note("stored", ORDERED, body)

    async def _later(self) -> None:
        delay = random.random() * LATER_MAX_S
        due = f"{time.time() + delay:.3f}"
        body = f"{due}/".encode() + next(self._bodies)
        await self._mq.send(LATER, body, delay=delay)
        self._diary.note("stored", LATER, body)

    async def _half(self) -> None:
        bodies = [next(self._bodies) for _ in range(2)]
        transaction = self._mq.transaction()
        self._undecided.add(transaction.id)
        try:
            async with transaction:
                for body in bodies:
                    await transaction.send(HALF, body)
                if random.random() < 0.3:
                    raise ternmq.Rollback
                self._committed.add(transaction.id)
        finally:
            self._undecided.discard(transaction.id)
        what = "stored" if transaction.id in self._committed else "rolled"
        self._diary.note(what, HALF, *bodies)


async def consume(mq: ternmq.Client, diary: Diary, *, ordered: bool) -> None:
    """Until cancelled; most are acked, some come again, some are rejected."""
    topics = [ORDERED] if ordered else [PLAIN, LATER, HALF]
    group = IN_ORDER if ordered else GROUP
    async with mq.consumer(topics, group=group, ordered=ordered, prefetch=100) as consumer:
        async for message in consumer:
            body, topic, chance = message.body, message.topic, random.random()
            if topic == LATER:
                early = float(body.partition(b"/")[0]) - time.time()
                assert early < EARLY_S, f"{body!r} came {early:.3f} s before its moment"
            diary.note("got", topic, body)
            if chance < 0.03:
                message.retry(after=0.1)
            elif chance < 0.04 and not ordered:
                await _reject(message, diary)
            else:
                message.ack()


async def _reject(message: ternmq.Message, diary: Diary) -> None:
    with contextlib.suppress(ternmq.LeaseLost, *UNCERTAIN):
        await message.reject("one in a hundred")
        diary.note("rejected", message.topic, message.body)


async def run(what: str, url: str, diary: Diary, name: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    # A name of its own: only who sent a transaction is asked what became of it.
    async with ternmq.connect(url, app=name, wait=60, delivery_timeout=DELIVERY_S) as mq:
        if what == "produce":
            await SoakProducer(mq, diary, name).run(stop)
            return
        consumers = [
            asyncio.create_task(consume(mq, diary, ordered=ordered)) for ordered in (False, True)
        ]
        stopping = asyncio.create_task(stop.wait())
        ended, _ = await asyncio.wait([stopping, *consumers], return_when=asyncio.FIRST_COMPLETED)
        for each in consumers:
            each.cancel()
        await asyncio.wait(consumers)
        for each in consumers:
            if each in ended:
                each.result()


def main() -> None:
    what, url, path, name = sys.argv[1:]
    with Path(path).open("a", encoding="ascii") as file:
        asyncio.run(run(what, url, Diary(file), name))


if __name__ == "__main__":
    main()
