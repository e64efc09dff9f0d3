"""The gateway as a process: beside `tern up`, refused where everybody could reach it."""

import socket
from pathlib import Path

from tests.integration.gateway.clients import ClientFactory
from tests.integration.processes import NodeFactory, free_ports, tern
from tests.waiting import wait_until


def listens(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        return True


def test_tern_up_starts_a_gateway_that_stops_with_it(
    node_factory: NodeFactory, rocket: ClientFactory
) -> None:
    port = free_ports(1)
    node = node_factory(arguments=["--rocketmq", str(port)])
    assert f"rocketmq 127.0.0.1:{port}" in node.stderr_text()
    wait_until(lambda: listens(port), "the gateway listens", ignoring=OSError, seconds=60)
    assert tern("topic", "create", "beside", url=node.url).code == 0
    client = rocket(f"127.0.0.1:{port}")
    client.do("producer", topics="beside")
    assert client.do("send", topic="beside", body="x")["id"]
    client.end()

    assert node.stop() == 0

    log: Path = node.data_dir / "rocketmq.log"
    assert "Traceback" not in log.read_text(encoding="utf-8")
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_another_address_than_loopback_is_refused() -> None:
    refused = tern("gateway", "serve", "--host", "0.0.0.0", code=2, url=None)

    assert "listens on loopback only" in refused.err


def test_a_bad_alias_is_refused_before_anything_starts() -> None:
    refused = tern("gateway", "serve", "--topic-alias", "order.paid", code=2, url=None)

    assert "write ALIAS=NAME" in refused.err
