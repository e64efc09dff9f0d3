"""Q1, Q10, D1, D7: meta servers, brokers and delay servers as processes of their own."""

import asyncio
from pathlib import Path

import pytest

import ternmq
from tests.integration.databases import Servers
from tests.integration.processes import (
    BrokerServer,
    MetaServer,
    NodeFactory,
    shared_secret_file,
    tern,
)
from tests.integration.zookeeper import ZooKeeper
from tests.waiting import wait_until


def url_of(*metas: MetaServer) -> str:
    return "tern://" + ",".join(meta.url.removeprefix("tern://") for meta in metas)


def registry_url(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "zookeeper":
        zookeeper: ZooKeeper = request.getfixturevalue("zookeeper")
        return zookeeper.url()
    if kind == "sqlite":
        return f"sqlite:///{folder / 'registry.db'}"
    servers: Servers = request.getfixturevalue("servers")
    address = servers.get(kind).database().address
    return address.render_as_string(hide_password=False)


def groups(url: str) -> list[str]:
    return [line["group"] for line in tern("broker", "list", "--json", url=url).json()]


async def consume_all(mq: ternmq.Client, topic: str, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    async with asyncio.timeout(60), mq.consumer(topic, group="g", start="earliest") as messages:
        async for message in messages:
            bodies.append(message.body)
            await message.ack()
            if len(bodies) == count:
                break
    return bodies


@pytest.mark.parametrize(
    "kind",
    [
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.long),
        pytest.param("zookeeper", marks=pytest.mark.long),
    ],
)
async def test_two_meta_servers_and_two_broker_groups_are_one_cluster(
    kind: str, request: pytest.FixtureRequest, node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Q1, D1: every kind of registry; a topic made by one meta server is known to the other; its
    messages are shared out over the broker groups and all come out once."""
    registry = registry_url(kind, request, tmp_path)
    first, second = node_factory.meta_server(registry), node_factory.meta_server(registry)
    url = url_of(first, second)
    for name in ("east", "west"):
        node_factory.broker_server(url, name)
    assert groups(first.url) == groups(second.url) == ["east", "west"]

    sent = [b"%d" % number for number in range(1_000)]
    async with ternmq.connect(url_of(first), app="shop") as mq:
        for at in range(0, 1_000, 50):
            await mq.send_many("orders", sent[at : at + 50])
        shares = await mq.admin.broker_status(topics=["orders"])
    assert all(share.topics[0].end > 0 for share in shares)
    async with ternmq.connect(url_of(second), app="shop") as mq:
        found = await consume_all(mq, "orders", 1_000)

    assert sorted(found) == sorted(sent)


async def test_a_cluster_goes_on_when_a_meta_server_dies_and_while_all_are_away(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Q10, Q11: clients and brokers use what they know; when meta is back everything heals."""
    registry = f"sqlite:///{tmp_path / 'registry.db'}"
    first, second = node_factory.meta_server(registry), node_factory.meta_server(registry)
    url = url_of(first, second)
    node_factory.broker_server(url, "east")
    async with ternmq.connect(url, app="shop") as mq:
        await mq.send("orders", b"1")
        first.kill()
        await mq.send("orders", b"2")
        await mq.admin.create_topic("new")  # By the one that is left.
        second.kill()
        await mq.send("orders", b"3")
        with pytest.raises(ternmq.TernError):
            await mq.admin.create_topic("newer")
        second.start()
        wait_until(lambda: groups(second.url) == ["east"], "east is back on the routes")
        await mq.admin.create_topic("newer")
        await mq.send("newer", b"4")

        assert await consume_all(mq, "orders", 3) == [b"1", b"2", b"3"]


async def test_a_new_broker_group_takes_load_and_its_messages_are_consumed_at_once(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Q1, R1: nobody is restarted, neither the producer nor the consumer."""
    meta = node_factory.meta_server(f"sqlite:///{tmp_path / 'registry.db'}")
    node_factory.broker_server(meta.url, "east")
    async with (
        ternmq.connect(meta.url, app="shop") as mq,
        mq.consumer("orders", group="g", start="earliest") as messages,
    ):
        await mq.send("orders", b"before")
        node_factory.broker_server(meta.url, "west")
        stored: set[str] = set()

        async def send_until_west() -> None:
            while "west" not in stored:
                stored.add((await mq.send("orders", b"after")).broker_group)

        async with asyncio.timeout(30):
            await send_until_west()
            await mq.send("orders", b"last one to east or west")
            await mq.send("orders", b"last one to the other")
            left = {b"before", b"last one to east or west", b"last one to the other"}
            async for message in messages:
                await message.ack()
                left.discard(message.body)
                if not left:
                    break


def test_a_broker_says_when_no_meta_server_answers(tmp_path: Path) -> None:
    ran = tern(
        "broker",
        "serve",
        "--url",
        "tern://127.0.0.1:1",
        "--data-dir",
        str(tmp_path / "data"),
        "--node-secret-file",
        shared_secret_file(tmp_path)["TERN_NODE_SECRET_FILE"],
        code=1,
    )

    assert "127.0.0.1:1" in ran.err
    assert "Traceback" not in ran.err


def test_broker_list_shows_epoch_state_address_and_pid(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    meta = node_factory.meta_server(f"sqlite:///{tmp_path / 'registry.db'}")
    broker: BrokerServer = node_factory.broker_server(meta.url, "east")
    broker.kill()
    broker.start()
    [line] = tern("broker", "list", "--json", url=meta.url).json()

    shown = {"group", "role", "epoch", "state", "address", "pid", "lag"}
    assert {key: value for key, value in line.items() if key in shown} == {
        "group": "east",
        "role": "master",
        "epoch": 2,
        "state": "ok",
        "address": f"127.0.0.1:{broker.port + 1}",
        "pid": broker.pid,
        "lag": 0,
    }
