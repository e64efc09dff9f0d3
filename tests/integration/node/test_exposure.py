"""What others on the machine and on the network get to see of a server: finding M4."""

import stat
from pathlib import Path

from tests.integration.processes import NodeFactory, free_ports, tern
from tests.unit.node.metrics_page import free_port, get
from tests.waiting import wait_until

CANARY = "c4n4ry"


def test_an_address_that_others_reach_needs_a_word(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "some.host"):
        ran = tern("up", "--data-dir", str(tmp_path / "data"), "--host", host, code=2)
        assert "insecure = true" in ran.err and "Traceback" not in ran.err
        assert not (tmp_path / "data").exists()
    for role in (("meta",), ("broker",), ("delay",)):
        ran = tern(*role, "serve", "--data-dir", str(tmp_path / "d"), "--host", "0.0.0.0", code=2)
        assert "insecure = true" in ran.err


def test_with_the_word_it_warns_at_every_start_in_the_doctor_and_as_a_metric(
    node_factory: NodeFactory,
) -> None:
    port = free_port()
    node = node_factory(
        arguments=[
            "--host",
            "0.0.0.0",
            "--advertised-host",
            "127.0.0.1",
            "--insecure",
            "--metrics-port",
            str(port),
        ]
    )
    assert b"tern_node_insecure 1.0" in get(port)[1]
    assert "insecure = true" in tern("doctor", url=node.url).out
    node.restart()
    wait_until(
        lambda: node.stderr_text().count("insecure = true: whoever reaches") == 2, "both warnings"
    )


def test_a_node_on_loopback_does_not_warn(node_factory: NodeFactory) -> None:
    port = free_port()
    node = node_factory(arguments=["--metrics-port", str(port)])

    assert b"tern_node_insecure 0.0" in get(port)[1]
    assert "insecure" not in tern("doctor", url=node.url).out + node.stderr_text()


def test_files_are_for_their_owner_only(node_factory: NodeFactory) -> None:
    node = node_factory()
    assert tern("send", "orders", "1", url=node.url).code == 0
    assert tern("send", "orders", "1", "--delay", "1h", url=node.url).code == 0
    node.stop()
    found = [node.data_dir, *node.data_dir.rglob("*")]
    open_to_others = [
        f"{path.name} {stat.S_IMODE(path.stat().st_mode):o}"
        for path in found
        if path.stat().st_mode & 0o077
    ]

    assert len(found) > 10
    assert open_to_others == []


def test_a_directory_that_others_may_look_into_is_named(node_factory: NodeFactory) -> None:
    node = node_factory()
    node.stop()
    node.data_dir.chmod(0o755)
    node.start()

    assert "chmod 700" in node.stderr_text()
    assert stat.S_IMODE(node.data_dir.stat().st_mode) == 0o755, "it is the owner's to change"


def test_a_cluster_keeps_its_files_to_itself(node_factory: NodeFactory) -> None:
    cluster = node_factory.cluster("--groups", "1", "--replicas", "0", "--delays", "0")
    open_to_others = [
        path.name for path in cluster.data_dir.rglob("*") if path.stat().st_mode & 0o077
    ]

    assert open_to_others == []


def test_the_password_of_a_registry_is_in_no_error_and_no_log(tmp_path: Path) -> None:
    for registry in (
        f"postgresql://tern:{CANARY}@127.0.0.1:1/tern",
        f"postgresq://tern:{CANARY}@db/tern",
    ):
        where = ["--port", str(free_ports()), "--data-dir", str(tmp_path / "data")]
        ran = tern("meta", "serve", "--registry", registry, *where, code=None)
        assert ran.code != 0
        assert CANARY not in ran.out + ran.err
