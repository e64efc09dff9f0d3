"""A node under hostile input: nothing ends as `internal`, nothing stays unanswered, all is read.

Fixed seeds; `make fuzz` goes on where these stop. The fixture fails the test if the node wrote a
traceback, and the size of its log is bounded here (findings C1, C3, H2).
"""

import time
from pathlib import Path

import pytest

from tests.fuzz.attacker import Findings
from tests.fuzz.doors import BATCH_DOORS, DoorFindings, attack_doors
from tests.fuzz.http2 import GROWTH_MAX, attack_many
from tests.fuzz.run import Target, attack, attack_as_server, check_whole
from tests.fuzz.secured import ON, attack_as_admin, attack_door, is_shut, make_users
from tests.integration.processes import SHARED_SECRET, Node, NodeFactory, tern
from tests.node_greeting import greeting

SEEDS = 28
SECURED_SEEDS = 10
LOG_SIZE_MAX = 1_000_000
STOP_S_MAX = 15.0
HTTP2_INPUTS = 3_000


@pytest.mark.timeout(600)
async def test_hostile_requests_and_batches_hurt_nobody(node: Node) -> None:
    findings, target = Findings(), Target(node)

    for seed in range(SEEDS):
        await attack(target, seed, findings)
    await check_whole(target)

    assert not findings.internal
    assert not findings.unanswered
    assert findings.sent == SEEDS * 200
    assert findings.stored > 100
    assert findings.read > 1_000
    assert len(node.stderr_text()) < LOG_SIZE_MAX


async def test_what_was_stored_is_there_after_a_restart(node: Node) -> None:
    """Also what a start reads again: nothing that got past the door keeps a node from starting."""
    findings, target = Findings(), Target(node)
    for seed in range(1_000, 1_003):
        await attack(target, seed, findings)

    node.kill()
    node.start()

    await check_whole(target)
    assert findings.stored
    began = time.monotonic()
    assert node.stop() == 0
    assert time.monotonic() - began < STOP_S_MAX, "what attackers left behind holds up nobody"


@pytest.mark.timeout(300)
async def test_users_admins_and_strangers_hurt_nobody_where_security_is_on(
    node_factory: NodeFactory,
) -> None:
    """The same by a user, by an admin at a node of its own, and by nobody at every door."""
    findings, node, of_admin = (
        Findings(),
        node_factory(environment=ON),
        node_factory(environment=ON),
    )
    target = Target(node, await make_users(node))

    for seed in range(2_000, 2_000 + SECURED_SEEDS):
        await attack(target, seed, findings)
        await attack_as_admin(of_admin, seed, findings)
        await attack_door(node.port + seed % 3, seed, findings)
    await check_whole(target)

    assert not findings.internal
    assert not findings.unanswered
    assert findings.stored > 10
    assert findings.answers["ok"] > 150, "some go deep"
    for port in range(node.port, node.port + 3):
        assert await is_shut(port)
    assert len(node.stderr_text()) < LOG_SIZE_MAX
    assert len(of_admin.stderr_text()) < LOG_SIZE_MAX


async def test_a_server_that_lost_its_mind_gets_answers_and_breaks_no_process(
    node: Node, node_factory: NodeFactory, tmp_path: Path
) -> None:
    """What servers ask each other, by one that has proven to be one; its meta server is not the
    honest one's, because it may say there what it likes of its own broker group."""
    findings = Findings()
    meta = node_factory.meta_server(f"sqlite:///{tmp_path / 'registry.db'}")
    of_g = greeting("g", secret=SHARED_SECRET)
    for seed in range(30):
        await attack_as_server(meta.port, "meta", of_g, seed, findings)
    of_main = greeting(secret=SHARED_SECRET)
    of_delay = greeting("main", "delay", SHARED_SECRET)
    for seed in range(10):
        await attack_as_server(node.port + 1, "broker", of_main, seed, findings)
        await attack_as_server(node.port + 2, "delay", of_delay, seed, findings)
    await check_whole(Target(node))

    assert not findings.internal
    assert not findings.unanswered
    assert findings.answers["ok"] > 20, "some go deep"
    assert tern("topic", "list", url=meta.url).code == 0
    assert len(meta.stderr_text()) < LOG_SIZE_MAX


def test_no_door_lets_anything_pass_that_a_reader_cannot_read() -> None:
    """S1: 100,000 changed inputs to the functions that bytes from outside reach first."""
    found = DoorFindings()

    for seed in range(6):
        attack_doors(seed, found)

    assert not found.problems
    assert found.given.total() > 90_000
    for name in (*BATCH_DOORS, "frames", "JOIN", "USER_SET", "handle", "cursor"):
        assert 0 < found.passed[name] < found.given[name], name


async def test_hostile_http2_leaves_nothing_behind() -> None:
    """Fixed seeds of what callers of a gateway can send; `make fuzz` goes on."""
    assert await attack_many(0, HTTP2_INPUTS) < GROWTH_MAX
