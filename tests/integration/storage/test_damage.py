"""A stopped data directory that lost or changed bytes: what the node makes of it at its next start.

Design 4: a tail that nobody was told is safe is cut; safe bytes that do not read are kept aside and
said so; what can be made again is made again; and a message that is new is never born acked.
"""

import asyncio
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

import ternmq
from ternmq.wire.messages.groups import Start
from tests.integration.faults import log_size
from tests.integration.processes import Node, NodeFactory, tern
from tests.integration.storage.test_disk_faults import take
from tests.integration.verifiable_clients import balanced, whole_topic

TOPIC = "orders"
GROUP = "readers"
BATCHES = 30
ROWS = 5
COUNT = BATCHES * ROWS
PART_GROUP = "halfway"
PART = 100
NEVER = {"TERN_CHECKPOINT_INTERVAL_MS": "1h"}
OFTEN = {"TERN_CHECKPOINT_INTERVAL_MS": "100"}
SENT = [f"body-{batch}-{row}" for batch in range(BATCHES) for row in range(ROWS)]


def long(value: object) -> ParameterSet:
    """One more of a kind, for long runs."""
    return pytest.param(value, marks=pytest.mark.long)


async def fill(node: Node) -> None:
    """Thirty batches of five; one group has acked all of it, the other the first part."""
    async with ternmq.connect(node.url, compression="none") as mq:
        for first in range(0, COUNT, ROWS):
            bodies = [body.encode() for body in SENT[first : first + ROWS]]
            assert not (await mq.send_many(TOPIC, bodies)).failures
        assert len(await take(mq, GROUP, COUNT)) == COUNT
        assert len(await take(mq, PART_GROUP, PART)) == PART
        # A decision is written after all progress before it, and at once.
        await mq.admin.create_group("marks", "mark", Start(at="earliest"))


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The same data, of a node that was killed and of one that was stopped."""
    factory = NodeFactory(tmp_path_factory.mktemp("originals"))
    try:
        crashed = factory(environment=NEVER)
        asyncio.run(fill(crashed))
        crashed.kill()
        stopped = factory(environment=OFTEN)
        asyncio.run(fill(stopped))
        assert stopped.stop() == 0
        yield {"crashed": crashed.data_dir, "stopped": stopped.data_dir}
    finally:
        factory.finish()


@pytest.fixture
def crashed(originals: dict[str, Path], node_factory: NodeFactory) -> Node:
    """Not running; nothing was checkpointed since its start."""
    return node_on_copy(originals["crashed"], node_factory)


@pytest.fixture
def stopped(originals: dict[str, Path], node_factory: NodeFactory) -> Node:
    """Not running; everything is checkpointed."""
    return node_on_copy(originals["stopped"], node_factory)


def node_on_copy(data_dir: Path, node_factory: NodeFactory) -> Node:
    node = node_factory(start=False)
    shutil.copytree(data_dir, node.data_dir)
    return node


def message_segment(node: Node) -> Path:
    return sorted((node.data_dir / "broker" / "message").glob("*.log"))[-1]


def cut_off(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(max(0, log_size(path) - size))


def lose_marks(node: Node) -> None:
    """As a power cut may: a killed process leaves the marks of its logs exact."""
    for mark in (node.data_dir / "broker").glob("*.mark"):
        mark.unlink()


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ 0x10]))


def place_of(path: Path, body: str) -> int:
    at = path.read_bytes().index(body.encode())
    assert at > 0
    return at


async def check_goes_on(node: Node, found_before: int) -> None:
    """Whatever was lost: a new message gets a new sequence and reaches the group that had acked
    everything, and the ledger balances."""
    async with ternmq.connect(node.url) as mq:
        receipt = await mq.send(TOPIC, b"newborn")
        assert receipt.sequence >= found_before
        while (got := await take(mq, GROUP, 1)) != ["newborn"]:
            assert got[0].startswith("body-")  # Came again: an ack was lost, which may be.
        for line in await mq.admin.ledger(TOPIC):
            assert balanced(line), line
        (line,) = await mq.admin.ledger(TOPIC, GROUP)
        assert line.ready == 0


async def stored(node: Node) -> list[str]:
    async with ternmq.connect(node.url) as mq:
        return list((await whole_topic(mq, TOPIC)).values())


@pytest.mark.parametrize("size", [1, long(100), long(400)])
async def test_a_torn_tail_is_cut_and_new_messages_are_not_born_acked(
    size: int, crashed: Node
) -> None:
    """R2, R3, Q2: nothing said that the last batch was safe, so it goes; the group had acked it,
    and its sequences are used again: they must come."""
    cut_off(message_segment(crashed), size)
    lose_marks(crashed)
    crashed.start()

    found = await stored(crashed)
    assert len(found) in (COUNT - ROWS, COUNT - 2 * ROWS)
    assert found == SENT[: len(found)]
    assert "torn tail cut" in crashed.stderr_text()
    assert "message log ends before the pull log" in crashed.stderr_text()
    await check_goes_on(crashed, len(found))
    shown = tern("ledger", "--json", url=crashed.url).json()
    assert all(line["sum"] == line["total"] for line in shown)


async def test_a_tail_that_was_safe_is_missed_and_its_sequences_are_not_used_again(
    stopped: Node,
) -> None:
    """The checkpoint says the bytes were on disk: that is damage, not a torn tail."""
    cut_off(message_segment(stopped), 100)
    stopped.start()

    assert await stored(stopped) == SENT[: COUNT - ROWS]
    assert "safe bytes cannot be read" in stopped.stderr_text()
    assert list((stopped.data_dir / "broker" / "quarantine").iterdir())
    await check_goes_on(stopped, COUNT)


@pytest.mark.parametrize("which", ["crashed", "stopped"])
async def test_a_flipped_bit_in_safe_bytes_costs_its_own_batch(
    which: str, originals: dict[str, Path], node_factory: NodeFactory
) -> None:
    """R3: the checksum finds it, the rest is there, nothing is deleted."""
    node = node_on_copy(originals[which], node_factory)
    segment = message_segment(node)
    size = log_size(segment)
    flip(segment, place_of(segment, "body-25-2"))
    node.start()

    async with ternmq.connect(node.url) as mq:
        rest = [body for body in SENT[PART:] if not body.startswith("body-25-")]
        assert sorted(await take(mq, PART_GROUP, len(rest))) == sorted(rest)
        (line,) = await mq.admin.ledger(TOPIC, PART_GROUP)
        assert balanced(line), line
        assert (line.acked, line.expired, line.ready) == (COUNT - ROWS, ROWS, 0)
    assert [body for body in SENT if not body.startswith("body-25-")] == await stored(node)
    assert log_size(segment) >= size
    said = node.stderr_text()
    assert "safe bytes cannot be read" in said or "messages lost to damage" in said
    await check_goes_on(node, COUNT)


async def test_a_flipped_bit_in_the_last_batch_of_a_crashed_node_is_a_torn_tail(
    crashed: Node,
) -> None:
    segment = message_segment(crashed)
    flip(segment, place_of(segment, f"body-{BATCHES - 1}-2"))
    lose_marks(crashed)
    crashed.start()

    assert await stored(crashed) == SENT[: COUNT - ROWS]
    assert "torn tail cut" in crashed.stderr_text()
    await check_goes_on(crashed, COUNT - ROWS)


def remove(*patterns: str) -> Callable[[Path], None]:
    return lambda data_dir: for_each(data_dir, patterns, Path.unlink)


def garble(*patterns: str) -> Callable[[Path], None]:
    return lambda data_dir: for_each(
        data_dir, patterns, lambda path: flip(path, log_size(path) // 2)
    )


def for_each(data_dir: Path, patterns: Sequence[str], act: Callable[[Path], None]) -> None:
    found = [path for pattern in patterns for path in (data_dir / "broker").glob(pattern)]
    assert found
    for path in found:
        act(path)


DERIVED = {
    "no tail": remove("consume/*.tail"),
    "no checkpoint": remove("checkpoint"),
    "no checkpoint, no tail, no producers": remove("checkpoint", "consume/*", "producers"),
    "bad tail": garble("consume/*.tail"),
    "bad checkpoint": garble("checkpoint"),
    "bad producers": garble("producers"),
}


@pytest.mark.parametrize("what", DERIVED)
async def test_what_can_be_made_again_is_made_again(what: str, stopped: Node) -> None:
    """R3: consume entries, checkpoint and producers follow from the message log."""
    DERIVED[what](stopped.data_dir)
    stopped.start()

    assert await stored(stopped) == SENT
    async with ternmq.connect(stopped.url) as mq:
        (line,) = await mq.admin.ledger(TOPIC, PART_GROUP)
        assert balanced(line)
        assert (line.acked, line.total) == (PART, COUNT)
        assert sorted(await take(mq, PART_GROUP, COUNT - PART)) == sorted(SENT[PART:])
    await check_goes_on(stopped, COUNT)


@pytest.mark.parametrize("size", [1, long(300), long(1_000_000)])
async def test_a_shorter_pull_log_means_repeats_and_nothing_worse(size: int, crashed: Node) -> None:
    """Design 6: some acked may be ready again, never the other way round."""
    cut_off(sorted((crashed.data_dir / "broker" / "pull").glob("*.log"))[-1], size)
    crashed.start()

    async with ternmq.connect(crashed.url) as mq:
        lines = {line.group: line for line in await mq.admin.ledger(TOPIC)}
        assert all(balanced(line) for line in lines.values())
        left = COUNT - lines[PART_GROUP].acked if PART_GROUP in lines else COUNT
        assert left >= COUNT - PART
        assert sorted(await take(mq, PART_GROUP, left)) == sorted(SENT[COUNT - left :])
    await check_goes_on(crashed, COUNT)


@pytest.mark.parametrize("restored", ["message", long("message consume checkpoint producers")])
async def test_an_older_message_log_under_a_newer_pull_log_never_makes_messages_born_acked(
    restored: str, stopped: Node, originals: dict[str, Path]
) -> None:
    """R3: what was sent after the copy is lost and said so; what is sent now arrives."""
    stopped.start()
    async with ternmq.connect(stopped.url) as mq:
        await mq.send_many(TOPIC, [b"lost"] * 20)
        assert len(await take(mq, GROUP, 20)) == 20
    assert stopped.stop() == 0
    for name in restored.split():
        source, target = originals["stopped"] / "broker" / name, stopped.data_dir / "broker" / name
        if source.is_dir():
            shutil.rmtree(target)
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
    stopped.start()

    assert await stored(stopped) == SENT
    said = stopped.stderr_text()
    assert "safe bytes cannot be read" in said or "ends before the pull log" in said
    await check_goes_on(stopped, COUNT)


async def test_a_missing_segment_costs_what_was_in_it(node_factory: NodeFactory) -> None:
    """The segments before and after it are read; the node says what is gone."""
    node = node_factory(environment=OFTEN | {"TERN_SEGMENT_SIZE": "8MiB"})
    body = bytes(range(100)) * 10
    async with ternmq.connect(node.url, compression="none") as mq:
        for _ in range(30):
            await mq.send_many(TOPIC, [body] * 1000)
    assert node.stop() == 0
    segments = sorted((node.data_dir / "broker" / "message").glob("*.log"))
    assert len(segments) == 4
    segments[1].unlink()
    node.start()

    async with ternmq.connect(node.url) as mq:
        found = [message.sequence async for message in mq.read(TOPIC)]
        assert 20_000 < len(found) < 25_000
        assert found[-1] == 29_999
        assert len(await take(mq, GROUP, len(found))) == len(found)
        (line,) = await mq.admin.ledger(TOPIC, GROUP)
        assert balanced(line)
        assert line.acked + line.expired == 30_000
    assert "[error" in node.stderr_text()
