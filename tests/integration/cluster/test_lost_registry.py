"""A registry that is lost, or older than the broker's data: nothing is given out a second time."""

import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import ternmq
from ternmq.core.clock import SystemClock
from ternmq.storage.files.checkpoint import decode
from ternmq.testing.node import node
from ternmq.wire.messages.groups import Start


def epoch_of(data: Path) -> int:
    return decode((data / "broker" / "checkpoint").read_bytes()).epoch


async def bodies(mq: ternmq.Client, topic: str) -> list[bytes]:
    return [bytes(message.body) async for message in mq.read(topic, start="earliest")]


async def first_life(data: Path) -> list[int]:
    """One topic, then the copy that is restored later, then a busy second topic and a third. Their
    numbers."""
    async with node(data_dir=data, clock=SystemClock()) as url, ternmq.connect(url) as mq:
        await mq.send("early", b"known to the old registry")
    shutil.copytree(data / "meta", data / "old")
    for _ in range(2):
        async with node(data_dir=data, clock=SystemClock()) as url, ternmq.connect(url) as mq:
            await mq.send("secret", b"salaries")
            if await mq.admin.groups() == []:
                await mq.admin.create_group("secret", "payroll", Start(at="earliest"))
                await mq.admin.create_topic("silent")
                await mq.admin.create_group("silent", "listeners", Start(at="earliest"))
            numbers = [(await mq.admin.topic(name)).id for name in ("early", "secret", "silent")]
    return numbers


@pytest.mark.parametrize("what", ["deleted", "older"])
async def test_new_topics_get_neither_messages_nor_groups_of_unknown_ones(
    what: str, tmp_path: Path
) -> None:
    """Ids and epochs are never reused, whatever happens to the registry (design 1 and 10)."""
    early, secret, silent = await first_life(tmp_path)
    right = tmp_path / "right"
    (tmp_path / "meta").rename(right)
    if what == "older":
        shutil.copytree(tmp_path / "old", tmp_path / "meta")
    epochs = [epoch_of(tmp_path)]
    for start in range(2):
        with capture_logs() as logs:
            async with node(data_dir=tmp_path) as url, ternmq.connect(url) as mq:
                for name in (f"new{start}", f"newer{start}", f"newest{start}"):
                    await mq.send(name, b"fresh")
                    assert await bodies(mq, name) == [b"fresh"]
                    assert await mq.admin.groups(name) == []
                    made = await mq.admin.create_group(name, "payroll", Start(at="earliest"))
                    assert made.name == "payroll"
                topics = [topic.name for topic in await mq.admin.topics()]
                assert ("early" in topics) == (what == "older")
        told = [line for line in logs if line["event"].startswith("registry is older than")]
        unknown = f"{secret}..{silent}"
        if what == "deleted":
            unknown = f"{early}, {unknown}"
        assert [line["unknown_topics"] for line in told] == [unknown], "at every start"
        epochs.append(epoch_of(tmp_path))
    assert epochs == sorted(set(epochs)), "every start had an epoch of its own"

    # With the right registry everything that it knows is back, its groups too.
    shutil.rmtree(tmp_path / "meta")
    right.rename(tmp_path / "meta")
    async with node(data_dir=tmp_path) as url, ternmq.connect(url) as mq:
        assert await bodies(mq, "secret") == [b"salaries"] * 2
        assert [group.name for group in await mq.admin.groups("secret")] == ["payroll"]
        assert [group.name for group in await mq.admin.groups("silent")] == ["listeners"]
        await mq.send("another", b"fresh")
        assert await bodies(mq, "another") == [b"fresh"]


async def test_a_registry_that_is_right_is_not_complained_about(tmp_path: Path) -> None:
    await first_life(tmp_path)
    async with node(data_dir=tmp_path) as url, ternmq.connect(url) as mq:
        await mq.admin.delete_topic("secret")
    with capture_logs() as logs:
        async with node(data_dir=tmp_path) as url, ternmq.connect(url) as mq:
            assert len(await mq.admin.topics()) == 2
    assert [line for line in logs if line["log_level"] in ("error", "warning")] == []
