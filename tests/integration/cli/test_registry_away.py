"""A registry that is dead is said to be, by name and since when (J5, D7, D14)."""

from typing import Any

import pytest

from tests.integration.cluster.test_cluster import url_of
from tests.integration.cluster.test_standing_outages import registry_server
from tests.integration.processes import NodeFactory, tern
from tests.waiting import wait_until


def registry_lines(url: str) -> list[dict[str, Any]]:
    report = tern("doctor", "--json", url=url, code=None).json()
    return [one for one in report if one["what"].startswith("registry")]


@pytest.mark.parametrize("kind", ["postgresql", pytest.param("zookeeper", marks=pytest.mark.long)])
def test_the_doctor_and_topic_create_name_a_registry_that_is_dead(
    kind: str, request: pytest.FixtureRequest, node_factory: NodeFactory
) -> None:
    registry, server = registry_server(kind, request)
    metas = [node_factory.meta_server(registry) for _ in range(2)]
    url = url_of(*metas)
    node_factory.broker_server(url, "east")
    tern("topic", "create", "orders", url=url)
    assert [one["level"] for one in registry_lines(url)] == ["ok", "ok"]

    server.kill()
    found = registry_lines(url)
    refused = tern("topic", "create", "bills", url=url, code=1)
    server.start()

    assert [one["level"] for one in found] == ["fail", "fail"]
    assert all("last heard 20" in one["found"] for one in found)
    assert {one["what"].partition(" of ")[2] for one in found} == {
        f"meta {meta.url.removeprefix('tern://')}" for meta in metas
    }
    assert "registry" in refused.err and "did not answer TOPIC_CREATE" not in refused.err
    assert tern("send", "orders", "x", url=url).code == 0
    wait_until(lambda: [one["level"] for one in registry_lines(url)] == ["ok", "ok"], seconds=60)
    tern("topic", "create", "bills", url=url)
