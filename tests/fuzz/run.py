"""Attack a node: `python -m tests.fuzz.run --seconds 600 --first 0` (what `make fuzz` does).

Starts a node of its own, sends seeded rounds of hostile requests and batches to all of its ports,
and says what it found: requests that ended as `internal` or were not answered, a node that ended, a
node that no longer delivers. The exit code is 1 where there was anything. With `--secured` the node
asks who comes: the attacker is a user, an admin (of a node of its own), and nobody at the door.
With `--doors` there is no node: functions that bytes from outside reach first get tens of thousands
of inputs a second (`doors.py`).
"""

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

import ternmq
from ternmq.client.transport.user_login import UserLogin
from ternmq.rpc.node_proof import NodeGreeting
from ternmq.wire.actions import OF_NODES
from ternmq.wire.numbers import Command
from tests.fuzz.attacker import Attacker, Findings
from tests.fuzz.batches import batch
from tests.fuzz.doors import BATCH_DOORS, DoorFindings, attack_doors
from tests.fuzz.requests import payload, requests, topics
from tests.fuzz.secured import ON, PASSWORD, attack_as_admin, attack_door, make_users
from tests.integration.processes import Node, NodeFactory
from tests.waiting import until

ROUND = 40
"""Requests that are sent at once."""
WHOLE_S = 60.0
PORTS = {"meta": 0, "broker": 1, "delay": 2}


@dataclass(frozen=True, slots=True)
class Target:
    """A node that is attacked, and as whom: nobody, or a user where security is on."""

    node: Node
    login: UserLogin | None = None

    def client(self, app: str) -> ternmq.Client:
        """An honest one."""
        if self.login is None:
            return ternmq.connect(self.node.url, app=app)
        url = self.node.url.replace("tern://", f"tern://{app}@")
        return ternmq.connect(url, password=PASSWORD)


async def attack(target: Target, seed: int, findings: Findings, rounds: int = 1) -> None:
    """One seed: batches for those that store them, which are read back; then requests for all."""
    random, names = Random(seed), topics(seed)
    known = requests()
    port, who = target.node.port, target.login
    for server in ("delay", "broker"):
        batches = _batches(random, names, delay=server == "delay")
        await _send(port + PORTS[server], batches, findings, who)
    findings.read += await read_back(target, names)
    for server in ("delay", "broker", "meta") * rounds:
        plain = [(number, kind) for number, kind in known[server] if kind is not None]
        chosen = random.choices(plain, k=ROUND)
        made = [(number, payload(random, kind, names)) for number, kind in chosen]
        await _send(port + PORTS[server], made, findings, who)


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
    who: NodeGreeting | UserLogin | None = None,
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


async def check_whole(target: Target) -> None:
    """The node still does its work: what was attacked goes on, what is new arrives."""
    async with asyncio.timeout(WHOLE_S), target.client("honest") as mq:
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


async def read_back(target: Target, names: list[str]) -> int:
    """Everything that got past the door is read, in order too, by a client that means well."""
    count = 0
    async with asyncio.timeout(WHOLE_S), target.client("fuzz") as mq:
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


async def _main(seconds: float, first: int, *, secured: bool, rounds: int) -> int:
    findings = Findings()
    with tempfile.TemporaryDirectory(prefix="tern-fuzz-") as folder:
        factory = NodeFactory(Path(folder))
        try:
            node = factory(environment=ON if secured else None)
            of_admin = factory(environment=ON) if secured else None
            target = Target(node, await make_users(node) if secured else None)
            end, seed = time.monotonic() + seconds, first
            while time.monotonic() < end:
                await attack(target, seed, findings, rounds)
                if of_admin is not None:
                    await attack_as_admin(of_admin, seed, findings)
                    await attack_door(node.port + seed % 3, seed, findings)
                seed += 1
                if seed % 20 == 0:
                    await check_whole(target)
                    line = f"\rseed {seed}: {findings.sent:,} sent, {findings.stored:,} stored"
                    sys.stderr.write(line)
            await check_whole(target)
        finally:
            factory.finish()
    sys.stdout.write(
        f"\nseeds {first} to {seed - 1}: {findings.sent:,} inputs, {findings.stored:,} batches got "
        f"past the door, {findings.read:,} rows read\n{dict(findings.answers)}\n"
    )
    for problem in sorted({*findings.internal, *findings.unanswered}):
        sys.stdout.write(f"problem: {problem}\n")
    return 1 if findings.internal or findings.unanswered else 0


def _doors(seconds: float, first: int) -> int:
    found, seed, began = DoorFindings(), first, time.monotonic()
    while time.monotonic() < began + seconds:
        attack_doors(seed, found)
        seed += 1
        if seed % 20 == 0:
            sys.stderr.write(f"\rseed {seed}: {found.given.total():,} inputs")
    given, taken = found.given.total(), time.monotonic() - began
    batches = sum(found.passed[name] for name in BATCH_DOORS)
    sys.stdout.write(
        f"\nseeds {first} to {seed - 1}: {given:,} inputs, {found.passed.total():,} got past their "
        f"door, {batches:,} of them batches, which were read; {given / taken:,.0f} a second, "
        f"{given / time.process_time():,.0f} a second of CPU; slowest {found.slowest_s:.3f} s\n"
    )
    for problem, sample in sorted(found.problems.items()):
        sys.stdout.write(f"problem: {problem}\n  {sample}\n")
    return 1 if found.problems else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long to attack")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--secured", action="store_true", help="a node with security on")
    parser.add_argument("--rounds", type=int, default=4, help="turns of requests for each seed")
    parser.add_argument("--doors", action="store_true", help="no node: first lines of code only")
    given = parser.parse_args()
    if given.doors:
        sys.exit(_doors(given.seconds, given.first))
    running = _main(given.seconds, given.first, secured=given.secured, rounds=given.rounds)
    sys.exit(asyncio.run(running))
