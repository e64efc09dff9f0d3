"""Consumers that vanish, freeze or lose their connection, as processes of their own (Q13, D5)."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import ternmq
from tests.integration.delivery.test_groups import crowd, fill, line_of
from tests.integration.processes import NodeFactory, clean_environment
from tests.integration.proxy import PROXIED, Proxy, proxied
from tests.integration.verifiable_clients import verifying
from tests.waiting import until, wait_until

TOPIC = "work"
GROUP = "workers"
HELD = 100
KEYS, EACH = 20, 5  # One message of each key is out at a time: some lie in a buffer.


@contextmanager
def slow_consumer(url: str, log: Path) -> Iterator[int]:
    """Its process id, while the block runs."""
    program = [sys.executable, "-m", "tests.integration.delivery.recording_consumer"]
    options = ["slow", f"group={GROUP}", "ordered=yes"]
    process = subprocess.Popen([*program, url, TOPIC, str(log), *options], env=clean_environment())
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def noted(path: Path) -> list[list[str]]:
    """(body, what) in order of time."""
    lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
    return [line.split() for line in lines]


def bodies(lines: list[list[str]], what: str) -> set[str]:
    return {body for body, done in lines if done == what}


async def test_the_messages_of_a_killed_consumer_are_with_others_within_seconds(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Q3, Q13: SIGKILL, then the grace for a connection that may come back, then others."""
    node = node_factory(environment={"TERN_SESSION_GRACE_MS": "1000"})
    async with ternmq.connect(node.url) as mq:
        sent = await fill(mq, TOPIC, HELD)
        with verifying(node.url, TOPIC, tmp_path / "log") as verifier:
            pid = verifier.hold("victim", GROUP)
            wait_until(lambda: verifier.count("got") == HELD, "it holds all", seconds=30)
            async with crowd(node, TOPIC, GROUP) as others:
                others.add(1)
                os.kill(pid, signal.SIGKILL)
                killed = time.monotonic()
                await others.until(HELD)
                assert time.monotonic() - killed < 8
        assert set(others.got) == sent
        assert (await line_of(mq, TOPIC, GROUP)).acked == HELD


async def test_a_consumer_whose_connection_blinks_keeps_its_messages(
    node_factory: NodeFactory,
) -> None:
    """D5: it comes back with its leases in time, so nobody else gets them, and its acks count."""
    node = node_factory(environment=PROXIED | {"TERN_SESSION_GRACE_MS": "20s"})
    async with proxied(node) as proxy, ternmq.connect(node.url) as mq:
        await fill(mq, TOPIC, 20)
        async with mq.consumer(TOPIC, group=GROUP) as consumer:
            held = [await anext(consumer) for _ in range(20)]
            for _ in range(3):
                opened = proxy.opened
                proxy.cut()
                await until(partial(came_back, proxy, opened), "it came back")
            async with crowd(node, TOPIC, GROUP) as others:
                others.add(1)
                for message in held:
                    message.ack()
                await consumer.flush()
            line = await line_of(mq, TOPIC, GROUP)
            assert (line.acked, line.ready, line.in_flight) == (20, 0, 0)
            assert not others.got
            assert all(message.attempt == 1 for message in held)


def came_back(proxy: Proxy, opened: int) -> bool:
    return proxy.opened > opened


async def test_a_frozen_consumer_loses_its_lease_and_its_late_acks_do_no_harm(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Q13: SIGSTOP is the pause that nobody announces; the lease ends it."""
    node = node_factory(environment={"TERN_LEASE_MS": "1000"})
    async with ternmq.connect(node.url) as mq:
        sent = await fill(mq, TOPIC, HELD)
        with verifying(node.url, TOPIC, tmp_path / "log") as verifier:
            pid = verifier.hold("frozen", GROUP)
            wait_until(lambda: verifier.count("got") == HELD, "it holds all", seconds=30)
            os.kill(pid, signal.SIGSTOP)
            async with crowd(node, TOPIC, GROUP) as others:
                others.add(1)
                await others.until(HELD)
                extra = await fill(mq, TOPIC, 10, first=5000)
                await others.until(HELD + 10)
                os.kill(pid, signal.SIGUSR1)
                os.kill(pid, signal.SIGCONT)
                await until(lambda: verifier.count("acked") == 1, "it acked what it had lost")
            verifier.alive()
        assert set(others.got) == sent | extra
        line = await line_of(mq, TOPIC, GROUP)
        assert (line.acked, line.ready, line.in_flight) == (HELD + 10, 0, 0)


async def test_a_consumer_that_goes_on_after_its_lease_begins_nothing_and_hears_of_its_late_ack(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Q1: what lay in its buffer was handled by another one meanwhile."""
    node = node_factory(environment={"TERN_LEASE_MS": "1500"})
    path = tmp_path / "log"
    async with ternmq.connect(node.url) as mq:
        for at in range(EACH):
            rows = [
                ternmq.Outgoing(body=b"%d-%d" % (key, at), order_key=f"k{key}")
                for key in range(KEYS)
            ]
            await mq.send_many(TOPIC, rows)
        with slow_consumer(node.url, path) as pid:
            wait_until(lambda: len(noted(path)) > 6, "it works")
            os.kill(pid, signal.SIGSTOP)
            before = noted(path)
            acked = bodies(before, "acked")
            taken: list[str] = []
            async with mq.consumer(TOPIC, group=GROUP, ordered=True) as other:
                while len(acked) + len(taken) < KEYS * EACH:
                    message = await anext(other)
                    taken.append(message.body.decode())
                    await message.ack()
            os.kill(pid, signal.SIGCONT)
            await mq.send(TOPIC, b"new", order_key="k0")
            await until(lambda: ["new", "acked"] in noted(path), "it goes on with what is new")

    after = noted(path)[len(before) :]
    in_hand = bodies(before, "begun") - acked
    assert bodies(after, "begun") == {"new"}
    assert bodies(after, "late") == in_hand <= set(taken)


async def test_a_busy_consumer_keeps_its_lease_by_renewing_it(node_factory: NodeFactory) -> None:
    """Q13: three lease times later the messages are still with it."""
    node = node_factory(environment={"TERN_LEASE_MS": "600"})
    async with ternmq.connect(node.url) as mq, ternmq.connect(node.url) as other:
        await fill(mq, TOPIC, 50)
        async with mq.consumer(TOPIC, group=GROUP) as consumer:
            held = [await anext(consumer) for _ in range(50)]
            async with crowd(node, TOPIC, GROUP) as others:
                others.add(1)
                ends = time.monotonic() + 2.0
                while time.monotonic() < ends:
                    assert (await line_of(other, TOPIC, GROUP)).in_flight == 50
                    await asyncio.sleep(0.1)
                for message in held:
                    message.ack()
                await consumer.flush()
            assert not others.got
        assert (await line_of(other, TOPIC, GROUP)).acked == 50
