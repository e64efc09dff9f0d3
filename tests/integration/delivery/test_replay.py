"""Resets and replays on real processes, with kill -9 in the middle (J14)."""

import subprocess
import sys
import threading
import time
from uuid import uuid4

import pytest

import ternmq.sync
from ternmq.wire.messages.groups import LedgerLine, Start
from tests.integration.processes import Node, NodeFactory, clean_environment, tern
from tests.waiting import wait_until

COMMAND = (sys.executable, "-m", "ternmq.cli.main")


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid4().hex[:12]}"


def lines(url: str, topic: str, group: str) -> dict[str, LedgerLine]:
    with ternmq.sync.connect(url, app="test") as mq:
        found = mq.admin.ledger(topic, group)
    for line in found:
        states = ("ready", "in_flight", "waiting_retry", "acked", "filtered", "skipped", "dead")
        assert line.total == sum(getattr(line, state) for state in (*states, "expired"))
    return {line.lane: line for line in found}


def consumed(url: str, topic: str) -> bytes:
    """The next message of group g, acked."""
    with ternmq.sync.connect(url, app="shop") as mq, mq.consumer(topic, group="g") as consumer:
        message = next(consumer)
        message.ack()
        consumer.flush()
        return message.body


def test_a_replay_that_is_killed_goes_on_and_copies_nothing_twice(
    node_factory: NodeFactory, topic: str
) -> None:
    """J14: kill -9 of the command and of the broker in the middle of a replay."""
    node = node_factory()
    with ternmq.sync.connect(node.url, app="shop") as mq:
        sent = mq.send_many(topic, [b"%d" % number for number in range(3_000)])
        ids = [sent[number].id for number in range(3_000)]
        mq.admin.create_group(topic, "g", Start(at="latest"))
    name = ids[0]
    arguments = ["group", "replay", topic, "--into", "g", "--yes", "--resume", name]
    running = subprocess.Popen(
        [*COMMAND, *arguments, "--rate", "2000", "--url", node.url],
        env=clean_environment(None),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with ternmq.sync.connect(node.url, app="test") as mq:
        wait_until(
            lambda: sum(line.total for line in mq.admin.ledger(topic, "g")) > 0, "a first copy"
        )
    node.kill()
    running.kill()
    running.wait()
    node.restart()
    before = lines(node.url, topic, "g")["private"].total

    done = tern(*arguments, "--json", url=node.url).json()

    assert 0 < before < 3_000
    assert done["copied"] == 3_000 - before
    with ternmq.sync.connect(node.url, app="shop") as mq, mq.consumer(topic, group="g") as consumer:
        again = mq.admin.replay(ternmq.Replay(topic=topic, into="g", name=name))
        assert again.copied == 0
        got = []
        for message in consumer:
            got.append(message.id)
            message.ack()
            if len(got) == 3_000:
                break
    assert sorted(got) == sorted(ids)
    assert lines(node.url, topic, "g")["private"].total == 3_000


def test_a_reset_reaches_a_busy_consumer_within_a_second(shared_node: Node, topic: str) -> None:
    """J14: what a consumer holds and did not show yet is withdrawn."""
    with ternmq.sync.connect(shared_node.url, app="shop") as mq:
        mq.send_many(topic, [b"%d" % number for number in range(2_000)])
        seen: list[tuple[float, int]] = []
        stop = threading.Event()

        def work() -> None:
            with mq.consumer(topic, group="g", prefetch=1_000) as consumer:
                for message in consumer:
                    seen.append((time.monotonic(), int(message.body)))
                    message.ack()
                    if stop.wait(0.01):  # Slow: a thousand in hand would last for ten seconds.
                        return

        worker = threading.Thread(target=work)
        worker.start()
        wait_until(lambda: len(seen) >= 5, "a few messages")
        mq.admin.reset_group(topic, "g", Start(at="sequence", value=1_900))
        answered = time.monotonic()
        wait_until(lambda: seen[-1][1] >= 1_900, "a message from the new place", seconds=5)
        stop.set()
        worker.join()

    first = next(at for at, number in seen if number >= 1_900)
    assert first - answered < 1


def test_a_reset_is_durable_when_answered(node_factory: NodeFactory, topic: str) -> None:
    """J14: kill -9 right after the answer."""
    node = node_factory()
    with ternmq.sync.connect(node.url, app="shop") as mq:
        mq.send_many(topic, [b"%d" % number for number in range(100)])
        with mq.consumer(topic, group="g") as consumer:
            for _ in range(100):
                next(consumer).ack()
        preview = mq.admin.reset_group(topic, "g", Start(at="sequence", value=40), dry_run=True)
        mq.admin.reset_group(topic, "g", Start(at="sequence", value=40))
        node.kill()
    node.restart()

    line = lines(node.url, topic, "g")["topic"]
    with ternmq.sync.connect(node.url, app="shop") as mq, mq.consumer(topic, group="g") as consumer:
        got = [int(next(consumer).body) for _ in range(60)]

    assert preview.again == 60
    assert (line.ready, line.total) == (60, 60)
    assert got == list(range(40, 100))


def test_only_what_failed_comes_again_also_after_kill_9(
    node_factory: NodeFactory, topic: str
) -> None:
    """J14, R12, R13: waiting for a retry and dead, by choice."""
    node = node_factory()
    with ternmq.sync.connect(node.url, app="shop") as mq:
        mq.send_many(topic, [b"fine", b"waits", b"dies"])
        with mq.consumer(topic, group="g") as consumer:
            next(consumer).ack()
            next(consumer).retry(after=3_600)
            next(consumer).reject("bad")
            consumer.flush()
    dry = tern("group", "reset", topic, "g", "--failed", "--dry-run", "--json", url=node.url)
    waiting = tern("group", "reset", topic, "g", "--waiting", "--yes", "--json", url=node.url)
    node.kill()
    node.restart()
    first = consumed(node.url, topic)
    both = tern("group", "reset", topic, "g", "--failed", "--yes", "--json", url=node.url)
    second = consumed(node.url, topic)
    found = lines(node.url, topic, "g")
    mixed = tern("group", "reset", topic, "g", "--to", "0", "--failed", url=node.url, code=2)

    assert (dry.json()["waiting"], dry.json()["dead"]) == (1, 1)
    assert (waiting.json()["waiting"], waiting.json()["dead"]) == (1, 0)
    assert (both.json()["waiting"], both.json()["dead"]) == (0, 1)
    assert (first, second) == (b"waits", b"dies")
    assert (found["topic"].acked, found["topic"].dead) == (2, 1)
    assert found["private"].acked == 1
    assert "either --to" in mixed.err
