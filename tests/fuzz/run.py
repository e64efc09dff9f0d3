"""Attack a node: `python -m tests.fuzz.run --seconds 600 --first 0` (what `make fuzz` does).

Starts a node of its own, sends seeded rounds of hostile requests and batches to all of its ports,
and says what it found: requests that ended as `internal` or were not answered, a node that ended, a
node that no longer delivers. The exit code is 1 where there was anything.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import ternmq
from ternmq.rpc.node_proof import NodeGreeting
from ternmq.wire.actions import OF_NODES
from ternmq.wire.numbers import Command
from tests.fuzz.attacker import Attacker, Findings
from tests.fuzz.batches import batch
from tests.fuzz.requests import payload, requests, topics
from tests.integration.processes import NodeFactory
from tests.waiting import until

ROUND = 40
"""Requests that are sent at once."""
WHOLE_S = 60.0
PORTS = {"meta": 0, "broker": 1, "delay": 2}


async def attack(url: str, port: int, seed: int, findings: Findings) -> None:
    """One seed: batches for those that store them, which are read back; then requests for all."""
    random, names = Random(seed), topics(seed)
    known = requests()
    for server in ("delay", "broker"):
        batches = _batches(random, names, delay=server == "delay")
        await _send(port + PORTS[server], batches, findings)
    findings.read += await read_back(url, names)
    for server in ("delay", "broker", "meta"):
        plain = [(number, kind) for number, kind in known[server] if kind is not None]
        chosen = random.choices(plain, k=ROUND)
        made = [(number, payload(random, kind, names)) for number, kind in chosen]
        await _send(port + PORTS[server], made, findings)


async def attack_as_server(
    port: int, kind: str, who: NodeGreeting, seed: int, findings: Findings
) -> None:
    """One seed of what servers ask each other, from one that has proven to be one."""
    random, names = Random(seed), topics(seed)
    asked = [each for each in requests()[kind] if each[0] in OF_NODES and each[1] is not None]
    chosen = random.choices(asked, k=ROUND)
    made = [(number, payload(random, record, names)) for number, record in chosen if record]
    await _send(port, made, findings, who)


async def _send(
    port: int,
    made: list[tuple[int, bytes]],
    findings: Findings,
    who: NodeGreeting | None = None,
) -> None:
    attacker = Attacker("127.0.0.1", port, findings, who)
    try:
        await attacker.send(made)
    finally:
        await attacker.close()


def _batches(random: Random, names: list[str], *, delay: bool) -> list[tuple[int, bytes]]:
    now_ms = time.time_ns() // 1_000_000
    made = []
    for _ in range(ROUND):
        command = Command.PUBLISH
        if not delay:
            command = random.choice((Command.PUBLISH, Command.PUBLISH_ONCE, Command.HALF))
        half = command is Command.HALF and random.random() < 0.9
        one = batch(random, names, now_ms=now_ms, delayed=delay or random.random() < 0.1, half=half)
        made.append((int(command), bytes(one)))
    return made


async def check_whole(url: str) -> None:
    """The node still does its work: what was attacked goes on, what is new arrives."""
    async with asyncio.timeout(WHOLE_S), ternmq.connect(url, app="honest") as mq:
        name = f"fuzz.good.{time.time_ns()}"
        await mq.send(name, b"now", key="k", tag="vip", properties={"amount": 11})
        await mq.send(name, b"later", delay=0.2)
        async with mq.consumer(name, group="g", start="earliest", filter="amount > 10") as one:
            async for message in one:
                await message.ack()
                break
        async with mq.consumer(name, group="all", start="earliest") as every:
            bodies = set()
            async for message in every:
                bodies.add(message.body)
                await message.ack()
                if bodies == {b"now", b"later"}:
                    break


async def read_back(url: str, names: list[str]) -> int:
    """Everything that got past the door is read, in order too, by a client that means well."""
    count = 0
    async with asyncio.timeout(WHOLE_S), ternmq.connect(url, app="fuzz") as mq:
        for name in names:
            try:
                found = [message async for message in mq.read(name, start="earliest")]
            except (ternmq.TopicNotFound, ternmq.Unauthorized, ternmq.Paused):
                continue
            for message in found:
                fields = (message.key, message.tag, message.order_key, message.born_at)
                assert len((*fields, message.properties, message.id)) == 6
            count += len(found)
            if found:
                await _consume(mq, name)
    return count


async def _consume(mq: ternmq.Client, name: str) -> None:
    """Everything by an ordered group, until none of its rows is left."""
    async with mq.consumer(name, group="in.order", start="earliest", ordered=True) as consumer:

        async def ack_all() -> None:
            async for message in consumer:
                message.ack()

        acking = asyncio.create_task(ack_all())

        async def is_empty() -> bool:
            assert not acking.done(), acking.exception()
            lines = await mq.admin.ledger(name, "in.order")
            return not sum(line.ready + line.in_flight + line.waiting_retry for line in lines)

        try:
            await until(is_empty, seconds=WHOLE_S)
        finally:
            acking.cancel()


async def _main(seconds: float, first: int) -> int:
    findings = Findings()
    with tempfile.TemporaryDirectory(prefix="tern-fuzz-") as folder:
        factory = NodeFactory(Path(folder))
        node = factory()
        try:
            end, seed = time.monotonic() + seconds, first
            while time.monotonic() < end:
                await attack(node.url, node.port, seed, findings)
                seed += 1
                if seed % 20 == 0:
                    await check_whole(node.url)
                    line = f"\rseed {seed}: {findings.sent:,} sent, {findings.stored:,} stored"
                    sys.stderr.write(line)
            await check_whole(node.url)
        finally:
            factory.finish()
    sys.stdout.write(
        f"\n{findings.sent:,} inputs, {findings.stored:,} batches got past the door, "
        f"{findings.read:,} rows read\n{dict(findings.answers)}\n"
    )
    for problem in sorted({*findings.internal, *findings.unanswered}):
        sys.stdout.write(f"problem: {problem}\n")
    return 1 if findings.internal or findings.unanswered else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long to attack")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    sys.exit(asyncio.run(_main(given.seconds, given.first)))
