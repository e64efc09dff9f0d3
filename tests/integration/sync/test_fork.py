"""Clients that are forked with their process: Gunicorn, Celery, multiprocessing (J11)."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ternmq
from ternmq.core.ids import id_from_text
from tests.integration.processes import Node, clean_environment
from tests.integration.sync.fork_programs import CHILDREN, MESSAGES, TOPIC
from tests.integration.verifiable_clients import balanced, whole_topic

SEQUENCE_BITS = 40


def run(how: str, node: Node) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.sync.fork_programs", how, node.url],
        capture_output=True,
        timeout=60,
        env=clean_environment(),
        cwd=Path(__file__).parents[3],
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["who"]: line for line in lines}


def producers(ids: list[str]) -> set[int]:
    """Message ids without their counting part."""
    return {id_from_text(text) >> SEQUENCE_BITS for text in ids}


@pytest.mark.parametrize("how", ["blocking", "coroutines", "pool"])
async def test_a_forked_child_has_its_own_connections_and_producer_id(how: str, node: Node) -> None:
    """J11: everything arrives once, and the parent goes on as if nothing had been."""
    async with ternmq.connect(node.url) as mq:
        await mq.send(TOPIC, b"first")
        (before,) = await mq.admin.broker_status()
    told = run(how, node)

    assert len(told) == CHILDREN + 1
    makers = [producers(one["ids"]) for one in told.values()]
    assert all(len(maker) == 1 for maker in makers)
    assert len(set.union(*makers)) == CHILDREN + 1, "two processes share a producer id"
    open_sockets = [set(one["sockets"]) for one in told.values() if one["sockets"]]
    assert open_sockets
    for one in open_sockets:
        for other in open_sockets:
            assert one is other or not one & other, "two processes share a connection"
    ids = [text for one in told.values() for text in one["ids"]]
    assert len(ids) == len(set(ids))
    async with ternmq.connect(node.url) as mq:
        found = await whole_topic(mq, TOPIC)
        (status,) = await mq.admin.broker_status()
    assert len(found) == len(ids) + 1
    assert len(ids) >= CHILDREN * MESSAGES + MESSAGES
    assert status.connections == before.connections, "somebody's connection is still there"
    assert "protocol_error" not in node.stderr_text()
    assert all(a < b for a, b in pairwise(sorted(found)))


async def test_a_consumer_stays_with_the_parent(node: Node) -> None:
    """J11: the child is told, makes a consumer of its own, and the parent's leases are kept."""
    told = run("consumers", node)

    assert len(told["parent"]["ids"]) == 2
    assert len(told["child"]["ids"]) == 1
    async with ternmq.connect(node.url) as mq:
        for line in await mq.admin.ledger(TOPIC):
            assert balanced(line)
            assert line.acked == (2 if line.group == "parent" else 1)
