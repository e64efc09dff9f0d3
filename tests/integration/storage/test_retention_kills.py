"""Old segments go while the node is killed again and again (R16)."""

import os
import random
import threading
import time

import pytest

import ternmq.sync
from tests.integration.processes import Node, NodeFactory
from tests.waiting import wait_until

QUICK = {
    "TERN_SEGMENT_SIZE": "8MiB",
    "TERN_RETENTION_SIZE": "17MiB",
    "TERN_RETENTION_INTERVAL_MS": "100",
    "TERN_CHECKPOINT_INTERVAL_MS": "100",
}
KILLS = 3
WAITING = 300


@pytest.mark.parametrize("seed", [1])
def test_nothing_that_waits_is_lost_while_segments_go_and_the_node_is_killed(
    node_factory: NodeFactory, seed: int
) -> None:
    """R16, R12: what waits for a retry is copied forward; the ledger balances after every kill."""
    rng = random.Random(seed)
    node = node_factory(environment=QUICK)
    with ternmq.sync.connect(node.url, app="shop") as mq:
        sent = mq.send_many("orders", [b"%d" % number for number in range(WAITING)])
        ids = {sent[number].id for number in range(WAITING)}
        with mq.consumer("orders", group="g") as consumer:
            for _ in range(WAITING):
                next(consumer).retry(after=3_600)
            consumer.flush()
    kills = set(rng.sample(range(5, 12), KILLS))  # Around the moment when the segment goes.
    with ternmq.sync.connect(node.url, app="filler") as filler:
        for step in range(20):
            killer = threading.Thread(target=kill_after, args=(node, rng.uniform(0.0, 0.15)))
            if step in kills:
                killer.start()
            filler.send_many("filler", [os.urandom(512 * 1024) for _ in range(4)])
            if step in kills:
                killer.join()
            check(node.url)
            if step > max(kills) and expired(node.url):
                break
    wait_until(lambda: expired(node.url) == WAITING, "the segment of the orders going")
    check(node.url)
    with ternmq.sync.connect(node.url, app="shop") as mq:
        mq.admin.retry_group("orders", "g")
        [status] = mq.admin.broker_status(["filler", "orders"])
        assert status.topics[0].first > 0
        seen: set[str] = set()
        with mq.consumer("orders", group="g") as consumer:
            for message in consumer:
                seen.add(message.id)
                message.ack()
                if seen == ids:
                    break
        receipt = mq.send("orders", b"next")
    assert receipt.sequence == WAITING


def kill_after(node: Node, seconds: float) -> None:
    time.sleep(seconds)
    node.kill()
    node.restart()


def check(url: str) -> None:
    with ternmq.sync.connect(url, app="check") as mq:
        for line in mq.admin.ledger("orders", "g"):
            done = line.acked + line.filtered + line.skipped + line.dead + line.expired
            assert line.total == line.ready + line.in_flight + line.waiting_retry + done


def expired(url: str) -> int:
    with ternmq.sync.connect(url, app="check") as mq:
        lines = {line.lane: line for line in mq.admin.ledger("orders", "g")}
    return int(lines["topic"].expired)
