"""R1, rows.md B1: meta servers with registries of their own are different clusters, and nothing of
one is ever shown under a name of the other."""

import asyncio
from pathlib import Path

import pytest

import ternmq
from tests.integration.processes import BrokerServer, MetaServer, NodeFactory, tern
from tests.waiting import wait_until


def url_of(*metas: MetaServer) -> str:
    return "tern://" + ",".join(meta.url.removeprefix("tern://") for meta in metas)


def registry(folder: Path, name: str) -> str:
    return f"sqlite:///{folder / name}"


def empty(folder: Path) -> None:
    for path in folder.glob("registry.db*"):
        path.unlink()


async def bodies(mq: ternmq.Client, topic: str) -> list[bytes]:
    return [bytes(message.body) async for message in mq.read(topic, start="earliest")]


def two_metas(nodes: NodeFactory, folder: Path) -> tuple[MetaServer, MetaServer, BrokerServer]:
    """As in the finding: each has a file of its own, and the broker is told of both."""
    first = nodes.meta_server(registry(folder, "first.db"))
    second = nodes.meta_server(registry(folder, "second.db"))
    return first, second, nodes.broker_server(url_of(first, second), "east")


async def test_a_meta_server_with_a_registry_of_its_own_is_refused_by_name(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    first, second, east = await asyncio.to_thread(two_metas, node_factory, tmp_path)
    stranger = second.url.removeprefix("tern://")
    async with ternmq.connect(url_of(first, second), app="shop", request_timeout=2) as mq:
        await mq.send("orders", b"known")
        await asyncio.to_thread(
            wait_until,
            lambda: f"the meta server {stranger} is not asked" in east.stderr_text(),
            "the broker names it",
        )
        doctor = await asyncio.to_thread(tern, "doctor", url=url_of(first, second), code=1)
        assert "they have registries of their own" in doctor.out
        assert stranger in doctor.out

        first.kill()
        await mq.send("orders", b"while it is away")
        with pytest.raises(ternmq.TernError, match=f"{stranger} is not asked"):
            await mq.admin.create_topic("brandnew")
        # A client that knows no better finds nobody there.
        async with ternmq.connect(
            second.url, app="shop", request_timeout=1, delivery_timeout=2
        ) as other:
            with pytest.raises(ternmq.Unavailable):
                await other.send("brandnew", b"fresh")

        await asyncio.to_thread(first.start)
        await mq.admin.create_topic("brandnew")
        await mq.send("brandnew", b"fresh")
        assert await bodies(mq, "brandnew") == [b"fresh"]
        assert await bodies(mq, "orders") == [b"known", b"while it is away"]


async def test_a_broker_that_starts_again_does_not_move_to_another_registry(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Also not to an empty one, while a meta server is away that may have its own."""
    first, _, east = await asyncio.to_thread(two_metas, node_factory, tmp_path)
    async with ternmq.connect(first.url, app="shop") as mq:
        await mq.send("orders", b"known")
    first.kill()
    east.kill()
    east.launch()
    await asyncio.to_thread(
        wait_until,
        lambda: "began in the registry of cluster" in east.stderr_text(),
        "the broker says why",
    )

    await asyncio.to_thread(first.start)
    await asyncio.to_thread(east.restart)
    async with ternmq.connect(first.url, app="shop") as mq:
        assert await bodies(mq, "orders") == [b"known"]


async def test_numbers_of_another_registry_never_mean_a_topic_of_this_one(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """The registry is emptied under a broker that runs, and topics are made before it notices."""
    path = registry(tmp_path, "registry.db")
    meta = await asyncio.to_thread(node_factory.meta_server, path)
    east = await asyncio.to_thread(node_factory.broker_server, meta.url, "east")
    async with ternmq.connect(meta.url, app="shop") as mq:
        await mq.send("secret", b"salaries")
        before = (await mq.admin.topic("secret")).id
    meta.kill()
    empty(tmp_path)
    await asyncio.to_thread(meta.start)
    async with ternmq.connect(meta.url, app="shop") as mq:
        for name in ("one", "two", "three"):
            assert (await mq.admin.create_topic(name)).id != before
            await mq.send(name, b"fresh")
            assert await bodies(mq, name) == [b"fresh"]
    assert east.running
