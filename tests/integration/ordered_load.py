"""Consumers of order keys, as processes of their own, and the check that order held.

    python -m tests.integration.ordered_load URL LOG NAME SECONDS

Takes part in the ordered group `billing` of `orders` and writes `begin NAME KEY NUMBER` and `end
NAME KEY NUMBER` into a log that all of them share: its lines are in the order in which things
happened. Several keys are in hand at a time, each for up to SECONDS. With the producers of
`slot_load`, whose messages are `KEY NUMBER`, `OrderedLoad` starts them all and says what was wrong:
a key in two hands, a message too early, one missing, or one that came again behind a later one.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import ternmq
from tests.integration.processes import clean_environment
from tests.waiting import until

KEYS = 16
ROOT = Path(__file__).parents[2]
HANDLING_S = 0.01


async def consume(url: str, log: int, name: str, handling_s: float) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def handle(message: ternmq.Message) -> None:
        line = f"{name} {message.body.decode()} {message.sequence}\n"
        os.write(log, f"begin {line}".encode())
        await asyncio.sleep(random.random() * handling_s)
        os.write(log, f"end {line}".encode())
        message.ack()

    async with (
        ternmq.connect(url, app=name) as mq,
        mq.consumer("orders", group="billing", start="earliest", ordered=True) as messages,
        asyncio.TaskGroup() as tasks,
    ):

        async def run() -> None:
            async for message in messages:
                tasks.create_task(handle(message))

        running = tasks.create_task(run())
        await stop.wait()
        running.cancel()


class OrderedLoad:
    """The processes of one run."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._log = folder / "ordered.log"
        self._log.touch()
        self._err = (folder / "ordered.err").open("ab")
        self._producers: list[subprocess.Popen[bytes]] = []
        self._consumers: list[subprocess.Popen[bytes]] = []

    def produce(self, name: str) -> None:
        self._producers.append(
            self._start("slot_load", self._url, name, str(KEYS), pipe=subprocess.PIPE)
        )

    def consume(self, name: str, handling_s: float = HANDLING_S) -> int:
        """Returns the process id."""
        arguments = (self._url, str(self._log), name, str(handling_s))
        process = self._start("ordered_load", *arguments, pipe=subprocess.DEVNULL)
        self._consumers.append(process)
        return process.pid

    def _start(self, module: str, *arguments: str, pipe: int | None) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-m", f"tests.integration.{module}", *arguments],
            stdin=pipe,
            stdout=pipe,
            stderr=self._err,
            env=clean_environment(),
            cwd=ROOT,
        )

    def begun(self, name: str) -> list[str]:
        """The keys that one consumer got messages of."""
        return [key for word, own, key, *_ in self._lines() if (word, own) == ("begin", name)]

    def _lines(self) -> list[list[str]]:
        return [line.split() for line in self._log.read_text().splitlines()]

    def count(self) -> int:
        """How many different messages were handled."""
        return len({(key, number) for word, _, key, number, _ in self._lines() if word == "end"})

    async def more(self, rows: int, *, seconds: float = 60) -> None:
        """Messages go on being handled."""
        await self._handled(self.count() + rows, seconds)

    async def _handled(self, wanted: int, seconds: float) -> None:
        def enough() -> bool:
            self._alive()
            return self.count() >= wanted

        await until(enough, f"{wanted} handled", seconds=seconds, every=0.1)

    def _alive(self) -> None:
        for process in [*self._producers, *self._consumers]:
            assert process.poll() is None, self._said()

    def _said(self) -> str:
        return Path(self._err.name).read_text()[-2000:]

    async def finish(self) -> None:
        """Everything that is stored was handled, each key in order and by one at a time."""
        sent: dict[str, int] = {}
        for process in self._producers:
            out, _ = await asyncio.to_thread(process.communicate, b"", 90)
            assert process.returncode == 0, self._said()
            sent |= json.loads(out)
        self._producers.clear()
        await self._handled(sum(sent.values()), seconds=90)
        for process in self._consumers:
            process.send_signal(signal.SIGTERM)
        for process in self._consumers:
            assert await asyncio.to_thread(process.wait, 30) == 0, self._said()
        assert min(sent.values()) > 5
        self._check(sent)

    def _check(self, sent: dict[str, int]) -> None:
        last = dict.fromkeys(sent, -1)
        holder: dict[str, str] = {}
        for line in self._lines():
            word, name, key, number, _ = line
            if word == "end":
                assert holder.pop(key) == name
                continue
            assert key not in holder, f"{line}: {holder[key]} is at work on this key"
            assert int(number) in (last[key], last[key] + 1), f"{line} comes after {last[key]}"
            holder[key], last[key] = name, int(number)
        assert {key: number + 1 for key, number in last.items()} == sent

    def close(self) -> None:
        for process in [*self._producers, *self._consumers]:
            if process.poll() is None:
                process.kill()
                process.communicate()
        self._err.close()


@asynccontextmanager
async def ordered_load(url: str, folder: Path) -> AsyncIterator[OrderedLoad]:
    """Two producers and two consumers at work; none outlives the block."""
    load = OrderedLoad(url, folder)
    try:
        for name in ("one", "two"):
            load.produce(name)
        for name in ("red", "blue"):
            load.consume(name)
        await load.more(100)
        yield load
    finally:
        load.close()


def main() -> None:
    url, path, name, seconds = sys.argv[1:]
    log = os.open(path, os.O_WRONLY | os.O_APPEND)
    asyncio.run(consume(url, log, name, float(seconds)))


if __name__ == "__main__":
    main()
