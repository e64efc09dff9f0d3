"""A registry that is emptied or restored from an old copy, under a broker group of two processes:
who lacks what was acknowledged never leads, and who can prove the state takes it up again."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import ternmq
from tests.integration.broker_pair import GROUP, Pair, bodies, make_pair
from tests.integration.processes import BrokerServer, NodeFactory, Ran, shared_secret_file, tern
from tests.waiting import wait_until

ALONE = {"TERN_REPLICA_LOST": "continue"}


def copy(source: Path, target: Path) -> None:
    """A backup as an operator makes one."""
    for name in (target, *(target.with_name(target.name + end) for end in ("-wal", "-shm"))):
        name.unlink(missing_ok=True)
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


async def cli(*arguments: str, url: str | None = None) -> Ran:
    return await asyncio.to_thread(tern, *arguments, url=url, code=None)


def empty(registry: Path) -> None:
    for name in registry.parent.glob(registry.name + "*"):
        name.unlink()


async def widowed(nodes: NodeFactory, folder: Path) -> tuple[Pair, BrokerServer, BrokerServer]:
    """The master went on without its replica and acknowledged more; then both were killed."""
    pair = await asyncio.to_thread(make_pair, nodes, folder, settings=ALONE)
    async with ternmq.connect(pair.url, app="test") as mq:
        await mq.send("orders", b"both")
        copy(folder / "registry.db", folder / "old.db")
        master = await asyncio.to_thread(pair.master)
        replica = await asyncio.to_thread(pair.replica)
        replica.kill()
        await mq.send("orders", b"alone")
    master.kill()
    await asyncio.to_thread(pair.meta.stop)
    return pair, master, replica


@pytest.mark.long
async def test_after_an_emptied_registry_a_stale_replica_waits_for_the_one_that_has_everything(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    pair, master, replica = await widowed(node_factory, tmp_path)
    empty(tmp_path / "registry.db")
    await asyncio.to_thread(pair.meta.start)
    await asyncio.to_thread(replica.start)

    refused = await cli("broker", "promote", GROUP, url=pair.url)
    assert refused.code == 1
    assert f"start 127.0.0.1-{master.port + 1}, then it heals by itself" in refused.err
    assert "--accept-loss. Known: 127.0.0.1-" in refused.err, "and how far it goes"
    assert (await asyncio.to_thread(pair.standing)).in_sync == []
    assert "registry was lost" in (await cli("broker", "list", url=pair.url)).out

    await asyncio.to_thread(master.start)
    await asyncio.to_thread(wait_until, lambda: pair.standing().master != "", "a master")
    assert await asyncio.to_thread(pair.master) is master
    assert "broker leads" not in replica.stderr_text()


@pytest.mark.long
async def test_an_old_copy_of_the_registry_does_not_make_a_stale_replica_master(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    pair, master, replica = await widowed(node_factory, tmp_path)
    copy(tmp_path / "old.db", tmp_path / "registry.db")
    await asyncio.to_thread(pair.meta.start)
    # It knows no better than the copy, which says that it is in sync; meta saw more.
    await asyncio.to_thread(replica.start)
    refused = await cli("broker", "promote", GROUP, url=pair.url)
    assert f"start 127.0.0.1-{master.port + 1}" in refused.err
    await asyncio.to_thread(master.start)
    await asyncio.to_thread(pair.wait_in_sync, 2)

    assert await asyncio.to_thread(pair.master) is master
    async with ternmq.connect(pair.url, app="test") as mq:
        assert await bodies(mq, "orders") == ["both", "alone"]
        await mq.send("orders", b"later")


@pytest.mark.long
async def test_a_running_group_survives_an_emptied_registry_by_itself(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path)
    before = await asyncio.to_thread(pair.standing)
    await asyncio.to_thread(pair.meta.stop)
    empty(tmp_path / "registry.db")
    await asyncio.to_thread(pair.meta.start)
    await asyncio.to_thread(
        wait_until,
        lambda: pair.standing().in_sync == before.in_sync,
        "the set of before",
        seconds=20,
    )
    after = await asyncio.to_thread(pair.standing)

    assert (after.master, after.epoch) == (before.master, before.epoch), "nobody was interrupted"
    assert after.version > before.version
    async with ternmq.connect(pair.url, app="test") as mq:
        await mq.send("new", b"taken by both")
        master = await asyncio.to_thread(pair.master)
        master.kill()
        await asyncio.to_thread(pair.wait_served, master)
        assert await bodies(mq, "new") == ["taken by both"]


@pytest.mark.long
async def test_a_person_decides_when_the_one_that_has_everything_is_gone(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    pair, master, replica = await widowed(node_factory, tmp_path)
    empty(tmp_path / "registry.db")
    await asyncio.to_thread(pair.meta.start)
    await asyncio.to_thread(replica.start)
    name = f"127.0.0.1-{replica.port + 1}"
    decided = await cli("broker", "promote", GROUP, name, "--accept-loss", "--yes", url=pair.url)
    assert decided.code == 0, decided.err
    assert await asyncio.to_thread(pair.master) is replica

    # The other one comes back after all: it deletes nothing that was acknowledged.
    await asyncio.to_thread(master.start)
    await asyncio.to_thread(
        wait_until,
        lambda: "Diverged" in master.stderr_text() or "acknowledged" in master.stderr_text(),
        "its word",
        seconds=20,
    )
    assert await asyncio.to_thread(pair.master) is replica


@pytest.mark.long
async def test_the_data_of_another_group_is_refused_in_one_line(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path, count=1)
    broker = pair.brokers[0]
    await asyncio.to_thread(broker.stop)
    renamed = await cli(
        "broker",
        "serve",
        "--name",
        "other",
        "--url",
        pair.url,
        "--data-dir",
        str(broker.data_dir),
        "--port",
        str(broker.port + 1),
        "--node-secret-file",
        shared_secret_file(tmp_path)["TERN_NODE_SECRET_FILE"],
    )
    assert renamed.code != 0
    assert f"is the data of a member of broker group '{GROUP}'" in renamed.err
    assert "Traceback" not in renamed.err
