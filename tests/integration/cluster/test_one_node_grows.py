"""A node of `tern up` becomes several servers: its folders move, its messages stay."""

import shutil

import pytest

from tests.integration.processes import NodeFactory, tern
from tests.waiting import wait_until


@pytest.mark.long
def test_the_folders_of_one_node_are_the_data_of_servers_of_their_own(
    node_factory: NodeFactory,
) -> None:
    node = node_factory()
    tern("send", "orders", "a", "b", "c", url=node.url)
    tern("consume", "orders", "--group", "g", "--count", "1", url=node.url)
    tern("send", "orders", "later", "--delay", "5s", url=node.url)
    assert node.stop() == 0

    registry = node.data_dir / "meta" / "registry.db"
    meta = node_factory.meta_server(f"sqlite:///{registry}")
    broker = node_factory.broker_server(meta.url, "main", start=False)
    delay = node_factory.delay_server(meta, "main", start=False)
    for server, folder in ((broker, "broker"), (delay, "delay")):
        server.data_dir.mkdir()
        shutil.move(node.data_dir / folder, server.data_dir / folder)
        server.start()
    node_factory.broker_server(meta.url, "main")

    def in_step() -> bool:
        lines = tern("broker", "list", "--json", url=meta.url).json()
        return [line["kind"] for line in lines if line["in_sync"]].count("realtime") == 2

    wait_until(in_step, "the replica is in step", seconds=20)
    [line] = tern("ledger", "orders", "g", "--json", url=meta.url).json()
    assert line["acked"] == 1
    got = tern("consume", "orders", "--group", "g", "--count", "3", url=meta.url)
    assert sorted(got.out.split()) == ["b", "c", "later"]
