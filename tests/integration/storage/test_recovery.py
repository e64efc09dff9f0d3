"""Kill -9 under load: nothing that was acknowledged is lost, nothing appears that was not sent.

Producers and consumers are processes of their own that go on through every restart
(`verifiable_clients.py`); the moment of each kill is chosen by a seeded random number of
acknowledgements, so that it falls into writes, checkpoints and segment rolls.
"""

import random
from pathlib import Path

import pytest

import ternmq
from tests.integration.processes import Node, NodeFactory
from tests.integration.verifiable_clients import Verifier, balanced, verifying, whole_topic
from tests.waiting import until, wait_until

TOPIC = "verified"
GROUP = "checkers"
SEED = 20_240_517
PROGRESS_SECONDS_MAX = 40.0
DRAIN_SECONDS_MAX = 60.0


async def check_ledger(node: Node, verifier: Verifier) -> None:
    """Right after a start: the line balances, and no row counts as acked that nobody got."""
    async with ternmq.connect(node.url) as mq:
        for line in await mq.admin.ledger(TOPIC):
            assert balanced(line), line
            assert line.acked <= len(verifier.got()), line


async def drained(node: Node, verifier: Verifier) -> None:
    """Let the consumers take the rest, then hold the counts against the ledger.

    Acks that a kill took with it make rows come again, once the grace for their old lease is over.
    """
    async with ternmq.connect(node.url) as mq:
        found = await whole_topic(mq, TOPIC)
        verifier.check_stored(found)

        async def all_acked() -> bool:
            (line,) = await mq.admin.ledger(TOPIC, GROUP)
            assert balanced(line)
            return line.acked == len(found)

        await until(all_acked, seconds=DRAIN_SECONDS_MAX)
        (line,) = await mq.admin.ledger(TOPIC, GROUP)
    assert (line.start, line.end, line.acked) == (0, len(found), len(found)), line
    verifier.end("consume")
    verifier.check_consumed(found)


async def run_kills(node: Node, folder: Path, *, kills: int, acks_max: int, seed: int) -> None:
    rng = random.Random(seed)
    with verifying(node.url, TOPIC, folder) as verifier:
        verifier.produce("one")
        verifier.produce("two")
        verifier.consume("first", GROUP)
        verifier.consume("second", GROUP)
        wait_until(lambda: verifier.at_work, "everybody began", seconds=20)
        for _ in range(kills):
            target = verifier.count("stored") + rng.randint(1, acks_max)
            wait_until(
                lambda at=target: verifier.count("stored") >= at,  # type: ignore[misc]
                "progress",
                seconds=PROGRESS_SECONDS_MAX,
            )
            node.kill()
            verifier.alive()
            node.start()
            await check_ledger(node, verifier)
        target = verifier.count("stored") + 1
        wait_until(lambda: verifier.count("stored") > target, "progress after the last start")
        verifier.end("produce")
        await drained(node, verifier)
        assert verifier.count("stored") == verifier.count("sent"), "a send had no outcome"


async def test_nothing_acknowledged_is_lost_by_kill_9_under_load(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Q2, Q3, R2, R3, R8, R14, D3: every acknowledged id comes out, the counts match the ledger."""
    node = node_factory(environment={"TERN_CHECKPOINT_INTERVAL_MS": "200"})

    await run_kills(node, tmp_path / "log", kills=5, acks_max=1500, seed=SEED)


async def test_nothing_is_left_in_a_locked_write_pool_by_kill_9(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """R26: what was acknowledged had left the pool."""
    node = node_factory(flush="async", environment={"TERN_WRITE_POOL": "1MiB"})

    await run_kills(node, tmp_path / "log", kills=1, acks_max=1500, seed=SEED)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush", ["sync", "async"])
async def test_forty_kills_in_a_row(flush: str, node_factory: NodeFactory, tmp_path: Path) -> None:
    """The same for longer, with segments that roll. A killed process loses nothing in async mode
    either: what the operating system has survives it."""
    node = node_factory(
        flush=flush,
        environment={"TERN_CHECKPOINT_INTERVAL_MS": "300", "TERN_SEGMENT_SIZE": "8MiB"},
    )

    await run_kills(node, tmp_path / "log", kills=40, acks_max=4000, seed=SEED + 1)
