"""A producer and a consumer that write down everything they did, as processes of their own.

They run beside the node and outlive its kills, so what they say can be held against what the node
says afterwards:

    python -m tests.integration.verifiable_clients produce URL TOPIC LOG NAME
    python -m tests.integration.verifiable_clients consume URL TOPIC LOG GROUP
    python -m tests.integration.verifiable_clients hold URL TOPIC LOG GROUP

The producer writes `sent BODY` before and `stored BODY SEQUENCE DUPLICATE` after each message; the
consumer writes `got BODY SEQUENCE` before it acks. SIGTERM ends them in good order; `hold` never
acks unless SIGUSR1 tells it to. `Verifier`
starts them, reads their logs and checks the node's state against them.
"""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TextIO, TypeVar

import ternmq
from ternmq.wire.messages.groups import LedgerLine
from tests.integration.processes import clean_environment

R = TypeVar("R")

WORKERS = 8
BATCH = 40
STATES = ("ready", "in_flight", "waiting_retry", "acked", "filtered", "skipped", "dead", "expired")
END_SECONDS_MAX = 60.0


async def taken(send: Callable[[], Awaitable[R]]) -> R:
    """Again while the broker group says that it takes none: certainly not stored."""
    while True:
        try:
            return await send()
        except ternmq.ReadOnly:
            await asyncio.sleep(0.1)


async def produce(url: str, topic: str, log: TextIO, name: str) -> None:
    """Send until SIGTERM, singly and in batches, then wait for every answer."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def singly(mq: ternmq.Client, worker: int) -> None:
        number = 0
        while not stop.is_set():
            body = f"{name}.{worker}.{number}"
            log.write(f"sent {body}\n")
            receipt = await taken(partial(mq.send, topic, body.encode(), key=body))
            log.write(f"stored {body} {receipt.sequence} {int(receipt.duplicate)}\n")
            log.flush()
            number += 1

    async def many(mq: ternmq.Client) -> None:
        number = 0
        while not stop.is_set():
            bodies = [f"{name}.many.{number + row}" for row in range(BATCH)]
            log.write("".join(f"sent {body}\n" for body in bodies))
            receipts = await taken(partial(mq.send_many, topic, [body.encode() for body in bodies]))
            assert not receipts.failures, receipts.failures
            for body, receipt in zip(bodies, receipts, strict=True):
                log.write(f"stored {body} {receipt.sequence} {int(receipt.duplicate)}\n")
            log.flush()
            number += BATCH

    async with (
        ternmq.connect(url, app="verifiable", delivery_timeout=120) as mq,
        asyncio.TaskGroup() as group,
    ):
        for worker in range(WORKERS):
            group.create_task(singly(mq, worker))
        group.create_task(many(mq))


async def consume(url: str, topic: str, log: TextIO, group: str) -> None:
    """Consume until SIGTERM; every message is written down, then acked."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with (
        ternmq.connect(url, app="verifiable") as mq,
        mq.consumer(topic, group=group, prefetch=200) as consumer,
    ):

        async def run() -> None:
            async for message in consumer:
                log.write(f"got {message.body.decode()} {message.sequence}\n")
                log.flush()
                message.ack()

        running = asyncio.create_task(run())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def hold(url: str, topic: str, log: TextIO, group: str) -> None:
    """Take messages and keep them un-acked until SIGUSR1, then ack them all."""
    now = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, now.set)
    held: list[ternmq.Message] = []
    async with (
        ternmq.connect(url, app="verifiable") as mq,
        mq.consumer(topic, group=group, prefetch=100) as consumer,
    ):

        async def run() -> None:
            async for message in consumer:
                held.append(message)
                log.write(f"got {message.body.decode()} {message.sequence}\n")
                log.flush()

        running = asyncio.create_task(run())
        await now.wait()
        for message in held:
            message.ack()
        await consumer.flush()
        log.write(f"acked {len(held)}\n")
        log.flush()
        await running


@dataclass(slots=True)
class Verifier:
    """The processes of one run, and what they wrote."""

    url: str
    topic: str
    folder: Path
    _processes: dict[Path, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _known: dict[Path, dict[str, list[list[str]]]] = field(default_factory=dict)
    _read: dict[Path, int] = field(default_factory=dict)

    def start(self, what: str, name: str, argument: str) -> None:
        log = self.folder / f"{what}-{name}.log"
        command = [sys.executable, "-m", "tests.integration.verifiable_clients", what]
        with (self.folder / f"{what}-{name}.err").open("wb") as err:
            self._processes[log] = subprocess.Popen(
                [*command, self.url, self.topic, str(log), argument],
                stdin=subprocess.DEVNULL,
                stdout=err,
                stderr=err,
                env=clean_environment(),
                cwd=Path(__file__).parents[2],
            )

    def produce(self, name: str) -> None:
        self.start("produce", name, name)

    def consume(self, name: str, group: str) -> None:
        self.start("consume", name, group)

    def hold(self, name: str, group: str) -> int:
        """Returns the process id."""
        self.start("hold", name, group)
        return self._processes[self.folder / f"hold-{name}.log"].pid

    def end(self, what: str) -> None:
        """Stop the producers or the consumers in good order, and see that they were content."""
        for log, process in self._processes.items():
            if log.name.startswith(what) and process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for log, process in self._processes.items():
            if log.name.startswith(what):
                code = process.wait(END_SECONDS_MAX)
                assert code == 0, log.with_suffix(".err").read_text()

    def kill(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def alive(self) -> None:
        """Fail when one of the processes has ended by itself."""
        for log, process in self._processes.items():
            assert process.poll() is None, log.with_suffix(".err").read_text()

    @property
    def at_work(self) -> bool:
        """Every process has done something."""
        return all(log.exists() and log.stat().st_size for log in self._processes)

    def lines(self, word: str) -> Iterator[list[str]]:
        """What was written so far; each file is read on from where the last call ended."""
        for log in self._processes:
            yield from self._read_on(log).get(word, ())

    def count(self, word: str) -> int:
        return sum(len(self._read_on(log).get(word, ())) for log in self._processes)

    def _read_on(self, log: Path) -> dict[str, list[list[str]]]:
        known = self._known.setdefault(log, {})
        if log.exists():
            with log.open("rb") as file:
                file.seek(self._read.get(log, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[log] = self._read.get(log, 0) + len(whole)
            for line in whole.decode("ascii").splitlines():
                word, *rest = line.split()
                known.setdefault(word, []).append(rest)
        return known

    def stored(self) -> dict[str, int]:
        """Body to sequence, as the receipts said."""
        return {body: int(sequence) for body, sequence, _ in self.lines("stored")}

    def got(self) -> Counter[str]:
        return Counter(body for body, _ in self.lines("got"))

    def check_stored(self, found: dict[int, str]) -> None:
        """`found` is the whole topic, sequence to body: R3, D3."""
        sent = {body for (body,) in self.lines("sent")}
        stored = self.stored()
        twice = {body: n for body, n in Counter(found.values()).items() if n > 1}
        assert not twice, f"stored more than once: {twice}"
        assert set(found.values()) <= sent, "something was stored that nobody sent"
        wrong = {body: at for body, at in stored.items() if found.get(at) != body}
        assert not wrong, f"{len(wrong)} receipts do not match what is read: {list(wrong)[:5]}"
        assert list(found) == list(range(len(found))), "sequences have a gap"

    def check_order(self, found: dict[int, str]) -> None:
        """Who sends one at a time finds its messages in that order."""
        last: dict[str, int] = {}
        for _, body in sorted(found.items()):
            sender, _, number = body.rpartition(".")
            if not sender.endswith(".many"):
                assert int(number) > last.get(sender, -1), f"{body} comes after a later one"
                last[sender] = int(number)

    def check_consumed(self, found: dict[int, str]) -> None:
        got = self.got()
        assert set(got) <= set(found.values()), "something was handed out that is not stored"
        missing = set(found.values()) - set(got)
        assert not missing, f"{len(missing)} of {len(found)} never came: {sorted(missing)[:5]}"
        for body, at in self.lines("got"):
            assert found[int(at)] == body


@contextmanager
def verifying(url: str, topic: str, folder: Path) -> Iterator[Verifier]:
    """A verifier whose processes do not outlive the block."""
    folder.mkdir(parents=True, exist_ok=True)
    verifier = Verifier(url, topic, folder)
    try:
        yield verifier
    finally:
        verifier.kill()


def balanced(line: LedgerLine) -> bool:
    """Design 6: every message is in exactly one state."""
    counted: int = sum(getattr(line, state) for state in STATES)
    return line.total == counted == line.end - line.start


async def whole_topic(mq: ternmq.Client, topic: str) -> dict[int, str]:
    """Everything that is stored, sequence to body."""
    return {message.sequence: message.body.decode() async for message in mq.read(topic)}


def main() -> None:
    what, url, topic, path, argument = sys.argv[1:]
    with Path(path).open("w", encoding="ascii") as log:
        job = {"produce": produce, "consume": consume, "hold": hold}[what]
        asyncio.run(job(url, topic, log, argument))


if __name__ == "__main__":
    main()
