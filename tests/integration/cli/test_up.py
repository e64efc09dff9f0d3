"""`tern up`: the ready line, one node per directory and port, and how it stops."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.processes import (
    COMMAND,
    Node,
    NodeFactory,
    clean_environment,
    free_ports,
    tern,
)
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def as_for_people(node_factory: NodeFactory) -> None:
    """Nodes of these tests start with all their imports, not out of the fork server."""
    node_factory.forked = False


def test_one_ready_line_and_nothing_else_goes_to_stdout(node: Node) -> None:
    tern("send", "hello", "first", url=node.url)

    assert node.stop() == 0
    assert node.stdout_text() == f"ready tern://127.0.0.1:{node.port}\n"


def test_people_are_told_what_runs_where_the_data_is_and_what_to_try(node: Node) -> None:
    said = node.stderr_text()

    assert f"127.0.0.1:{node.port}" in said
    assert f"127.0.0.1:{node.port + 1}" in said
    assert str(node.data_dir.resolve()) in said
    assert f"send hello 'my first message' --url {node.url}" in said


def test_a_second_node_on_the_same_directory_is_refused(node: Node) -> None:
    refused = tern("up", "--data-dir", str(node.data_dir), "--ports", str(free_ports()), code=2)

    assert refused.out == ""
    assert refused.err.count("\n") == 1
    assert refused.err.startswith("error: ")
    assert str(node.data_dir.resolve()) in refused.err
    assert f"pid {node.pid}" in refused.err
    assert node.running


def test_a_killed_node_leaves_a_lock_that_does_not_hold(node: Node) -> None:
    node.kill()
    node.start()

    assert node.stop() == 0


@pytest.mark.parametrize("role", ["meta", "broker"])
def test_a_taken_port_is_refused(role: str, tmp_path: Path) -> None:
    base = free_ports()
    port = base if role == "meta" else base + 1
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        refused = tern("up", "--data-dir", str(tmp_path / "data"), "--ports", str(base), code=2)

    assert refused.out == ""
    assert f"127.0.0.1:{port}" in refused.err
    assert refused.err.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(node: Node, number: signal.Signals) -> None:
    tern("send", "hello", "kept", url=node.url)

    os.kill(node.pid, number)

    assert node.process.wait(10) == 0


def test_it_stops_in_time_while_clients_are_connected_and_waiting(node: Node) -> None:
    consumer = subprocess.Popen(
        [*COMMAND, "consume", "hello", "--group", "g", "--url", node.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=clean_environment(),
    )
    try:
        tern("send", "hello", "one", url=node.url)
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == b"one\n"
        started = time.monotonic()

        assert node.stop() == 0
        assert time.monotonic() - started < 10
    finally:
        consumer.kill()
        consumer.communicate()


def test_messages_survive_a_clean_stop(node: Node) -> None:
    tern("send", "kept", "a", "b", "c", url=node.url)
    node.restart()

    consumed = tern("consume", "kept", "--group", "g", "--no-follow", url=node.url)

    assert consumed.out == "a\nb\nc\n"


def test_asserts_cannot_be_switched_off(tmp_path: Path) -> None:
    refused = subprocess.run(
        [sys.executable, "-O", *COMMAND[1:], "up", "--data-dir", str(tmp_path / "data")],
        capture_output=True,
        timeout=30,
        check=False,
        env=clean_environment(),
    )

    assert refused.returncode == 2
    assert b"python -O" in refused.stderr


def test_settings_come_from_file_environment_and_flags(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    file = tmp_path / "node.toml"
    file.write_text('flush = "async"\nauto_create_topics = true\n', encoding="utf-8")
    node = node_factory(
        arguments=["--config", str(file)],
        environment={"TERN_AUTO_CREATE_TOPICS": "false"},
    )

    assert "flush async" in node.stderr_text()
    assert "does not exist" in tern("send", "unknown", "x", url=node.url, code=1).err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("flsh = 'sync'", "did you mean 'flush'?"),
        ("ports = 99999", "ports must be"),
        ("ports 7700", "is not TOML"),
    ],
)
def test_a_bad_config_file_is_one_clear_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "node.toml"
    file.write_text(text, encoding="utf-8")

    refused = tern("up", "--config", str(file), "--data-dir", str(tmp_path / "data"), code=2)

    assert said in refused.err
    assert refused.err.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_logs_can_be_json_lines(node_factory: NodeFactory) -> None:
    node = node_factory(arguments=["--log-json"])

    assert node.stop() == 0
    assert '"event": "stopping"' in node.stderr_text()


def test_a_signal_while_starting_ends_the_start(node_factory: NodeFactory) -> None:
    node = node_factory(start=False)
    node.launch()
    wait_until((node.data_dir / "lock").exists, "the start")

    assert node.stop() in (0, -signal.SIGTERM)
