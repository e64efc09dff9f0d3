"""A node and a gateway for the session, and official clients of every language that is there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.gateway.clients import (
    ClientFactory,
    GatewayServer,
    make_gateway,
    python_command,
)
from tests.integration.processes import Node, NodeFactory


@pytest.fixture(scope="session")
def rocket_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node whose open transactions are asked about soon."""
    factory = NodeFactory(tmp_path_factory.mktemp("rocket"))
    try:
        yield factory(
            environment={"TERN_HALF_FIRST_CHECK_MS": "1000", "TERN_HALF_CHECK_INTERVAL_MS": "1000"}
        )
    finally:
        factory.finish()


@pytest.fixture(scope="session")
def gateway(rocket_node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    """One gateway for tests that use topics and groups of their own."""
    server = make_gateway(
        rocket_node.url, tmp_path_factory.mktemp("gateways"), ["--ordered", "fifo*"]
    )
    try:
        yield server
    finally:
        server.finish()


@pytest.fixture
def rocket(tmp_path: Path) -> Iterator[ClientFactory]:
    """Clients in Python."""
    factory = ClientFactory(python_command(), tmp_path)
    try:
        yield factory
    finally:
        factory.finish()
