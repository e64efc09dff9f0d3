"""Delayed rows of transactions while servers are killed: each comes once (P2, R11)."""

import os
import random
import time
from collections import Counter

import numpy as np
import pytest

from ternmq.batch.encoder import Columns, Section
from ternmq.batch.layout import Column, ColumnPart, Type
from ternmq.sync import Client, connect
from tests.integration.processes import NodeFactory
from tests.waiting import wait_until

SEED = int(os.environ.get("TERN_TEST_SEED", "5"))
WRITES, ROWS = 60, 50


def columns(first: int, due_ms: int) -> Columns:
    bodies = [b"%d" % number for number in range(first, first + ROWS)]
    offsets = np.cumsum([0, *map(len, bodies)]).astype("<i4").tobytes()
    data = b"".join(bodies)
    pieces = [
        Section(Column.BODY, ColumnPart.OFFSETS, Type.BINARY, offsets),
        Section(Column.BODY, ColumnPart.DATA, Type.BINARY, data),
        Section(Column.DUE, ColumnPart.VALUES, Type.INT64, np.full(ROWS, due_ms, "<i8").tobytes()),
    ]
    return Columns(pieces, ROWS, len(data), due_ms)


def write(mq: Client, number: int, delay_ms: int) -> None:
    """Two attempts are staged, one of them counts; the commit is told twice."""
    name, due_ms = f"query:{number}", int(time.time() * 1000) + delay_ms
    for attempt in (1, 2):
        task = mq.detached(name, attempt=attempt, fenced=False, expires=3_600)
        task.send_columns("orders", columns(number * ROWS, due_ms), later="later")
    for _ in range(2):
        mq.commit_detached(name, [2], "main", fenced=False)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_delayed_rows_come_once_through_kills_of_delay_server_and_broker(
    node_factory: NodeFactory,
) -> None:
    chance = random.Random(SEED)
    node = node_factory(arguments=["--no-delay"], environment={"TERN_SEGMENT_SIZE": "8MiB"})
    delay = node_factory.delay_server(node, "later")
    with connect(node.url, app="spark", delivery_timeout=60) as mq:
        for number in range(WRITES):
            write(mq, number, chance.choice([200, 2_000, 8_000]))
            if chance.random() < 0.15:
                server = chance.choice([delay, delay, node])
                server.kill()
                server.start()

        def seen() -> Counter[int]:
            return Counter(int(message.body) for message in mq.read("orders"))

        wait_until(lambda: sum(seen().values()) >= WRITES * ROWS, "all of them", seconds=120)
        delay.kill()
        delay.start()
        wait_until(lambda: bool(mq.admin.delays.ledger()), "the delay server answers", seconds=60)
        found = seen()
        assert (len(found), max(found.values())) == (WRITES * ROWS, 1), f"seed {SEED}"
        assert [line.accepted for line in mq.admin.delays.ledger()] == [WRITES * ROWS]
