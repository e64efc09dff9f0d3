"""Q1, Q10, D7: the registry contract against real PostgreSQL, MariaDB and ZooKeeper servers."""

import asyncio

import pytest

import ternmq
from ternmq.core.errors import BadConfig, Unavailable
from ternmq.meta.registries.url import open_registry
from ternmq.meta.registries.zookeeper_tree import ZooKeeperTree
from tests.integration.databases import Server, Servers
from tests.integration.processes import NodeFactory
from tests.integration.zookeeper import ZooKeeper
from tests.unit.meta.access.test_access_commands import *  # noqa: F403
from tests.unit.meta.access.test_key_commands import *  # noqa: F403
from tests.unit.meta.access.test_token_commands import *  # noqa: F403
from tests.unit.meta.conftest import Opener, registry
from tests.unit.meta.registries.test_registry import *  # noqa: F403
from tests.unit.meta.registries.test_registry import a_topic
from tests.unit.meta.registries.test_registry_documents import *  # noqa: F403
from tests.unit.meta.registries.test_registry_standings import *  # noqa: F403
from tests.waiting import until, wait_until

__all__ = ["registry"]


@pytest.fixture(params=["postgresql", "mysql", "zookeeper"])
def opener(request: pytest.FixtureRequest) -> Opener:
    """Opens the same registry each time it is called, as a restart would."""
    if request.param == "zookeeper":
        url: str = request.getfixturevalue("zookeeper").url()
    else:
        servers: Servers = request.getfixturevalue("servers")
        kind = {"mysql": "mariadb"}.get(request.param, request.param)
        address = servers.get(kind).database().address.set(drivername=request.param)
        url = address.render_as_string(hide_password=False)
    return lambda: open_registry(url)


@pytest.mark.long
def test_zookeeper_that_is_away_is_told_and_used_again_when_it_is_back(
    zookeeper: ZooKeeper,
) -> None:
    """Q10: registry gone, registry back: heals by itself, and nothing is lost."""
    check_an_outage(zookeeper.url(), zookeeper)


async def test_clients_are_nodes_in_zookeeper_while_they_are_there(
    zookeeper: ZooKeeper, node_factory: NodeFactory
) -> None:
    """D1: ephemeral nodes of servers and clients, gone with them or with their meta server."""
    url = zookeeper.url()
    settings = {"TERN_REGISTRY_CLIENTS": "true", "TERN_REGISTRY_REFRESH_MS": "1000"}
    meta = await asyncio.to_thread(node_factory.meta_server, url, environment=settings)
    path = url.rpartition("/")[2]
    tree = await asyncio.to_thread(
        ZooKeeperTree.open, f"127.0.0.1:{zookeeper.port}", description="test"
    )

    async def nodes() -> list[str]:
        found = await asyncio.to_thread(tree.children, f"/{path}/clients")
        return [node.partition(":")[0] for node in found]

    async def shown(*apps: str) -> bool:
        return sorted(await nodes()) == list(apps)

    async with ternmq.connect(meta.url, app="shop"):
        async with ternmq.connect(meta.url, app="till", refresh_interval=1):
            await until(lambda: shown("shop", "till"))
        await until(lambda: shown("shop"))
        meta.kill()
        await until(lambda: shown(), seconds=40)
    await asyncio.to_thread(tree.close)


@pytest.mark.parametrize("kind", ["postgresql", pytest.param("mariadb", marks=pytest.mark.long)])
def test_a_database_that_is_away_is_told_and_used_again_when_it_is_back(
    kind: str, servers: Servers
) -> None:
    server = servers.get(kind)
    check_an_outage(server.database().address.render_as_string(hide_password=False), server)


def check_an_outage(url: str, server: Server | ZooKeeper) -> None:
    registry = open_registry(url)
    [topic] = registry.create_topics([a_topic()])
    server.kill()
    with pytest.raises(Unavailable, match="does not answer"):
        registry.create_topics([a_topic("new")])
    server.start()
    wait_until(lambda: registry.topics()[:1] == [topic], seconds=60, ignoring=Unavailable)
    registry.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "is no url"),
        ("oracle://host/db", "no such kind"),
        ("sqlite://", "names no file"),
        ("sqlite:////nowhere/at/all/r.db", "does not exist"),
        ("postgresql://127.0.0.1:1", "names no database"),
        ("zookeeper://", "names no server"),
    ],
)
def test_a_registry_url_that_is_wrong_says_what_to_write(url: str, said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        open_registry(url)


@pytest.mark.parametrize("url", ["postgresql://127.0.0.1:1/tern", "mysql://127.0.0.1:1/tern"])
def test_a_server_that_does_not_answer_is_unavailable(url: str) -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        open_registry(url)
