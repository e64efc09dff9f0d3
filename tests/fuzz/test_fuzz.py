"""A node under hostile input: nothing ends as `internal`, nothing stays unanswered, all is read.

Fixed seeds; `make fuzz` goes on where these stop. The fixture fails the test if the node wrote a
traceback, and the size of its log is bounded here (findings C1, C3, H2).
"""

import pytest

from tests.fuzz.attacker import Findings
from tests.fuzz.run import attack, check_whole
from tests.integration.processes import Node

SEEDS = 40
LOG_SIZE_MAX = 1_000_000


@pytest.mark.timeout(600)
async def test_hostile_requests_and_batches_hurt_nobody(node: Node) -> None:
    findings = Findings()

    for seed in range(SEEDS):
        await attack(node.url, node.port, seed, findings)
    await check_whole(node.url)

    assert not findings.internal
    assert not findings.unanswered
    assert findings.sent == SEEDS * 200
    assert findings.stored > 100
    assert findings.read > 1_000
    assert len(node.stderr_text()) < LOG_SIZE_MAX


async def test_what_was_stored_is_there_after_a_restart(node: Node) -> None:
    """Also what a start reads again: nothing that got past the door keeps a node from starting."""
    findings = Findings()
    for seed in range(1_000, 1_003):
        await attack(node.url, node.port, seed, findings)

    node.kill()
    node.start()

    await check_whole(node.url)
    assert findings.stored
