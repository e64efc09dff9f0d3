"""D1: `tern cluster` runs a whole cluster on one machine, out of real processes."""

import os
import signal
import socket
from pathlib import Path

import pytest

from tests.integration.processes import NodeFactory, free_ports, tern
from tests.waiting import wait_until


def pids(url: str) -> dict[str, int]:
    """Of the masters, by broker group."""
    lines = tern("broker", "list", "--json", url=url).json()
    return {line["group"]: line["pid"] for line in lines if line["role"] == "master"}


def alive(pid: int) -> bool:
    """A process that ended and was not waited for is dead too."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_a_cluster_is_ready_takes_messages_stops_and_goes_on_where_it_was(
    node_factory: NodeFactory,
) -> None:
    """One line on stdout; a log for each process; the second start has what the first one got."""
    cluster = node_factory.cluster("--groups", "2", "--replicas", "1")
    assert cluster.stdout_text() == f"ready tern://127.0.0.1:{cluster.port}\n"
    lines = tern("broker", "list", "--json", url=cluster.url).json()
    assert [(line["group"], line["role"], line["in_sync"]) for line in lines] == [
        ("group-1", "master", True),
        ("group-1", "replica", True),
        ("group-2", "master", True),
        ("group-2", "replica", True),
    ]
    before = [line["pid"] for line in lines]
    tern("send", "orders", "a", "b", url=cluster.url)
    tern("send", "later", "c", "--delay", "1ms", url=cluster.url)
    tern("consume", "later", "--group", "g", "--count", "1", url=cluster.url)

    assert cluster.stop() == 0

    assert not [pid for pid in before if alive(pid)]
    logs = sorted(path.name for path in (cluster.data_dir / "logs").iterdir())
    assert logs == [
        "delay-1-b.log",
        "delay-1.log",
        "group-1-a.log",
        "group-1-b.log",
        "group-2-a.log",
        "group-2-b.log",
        "meta-1.log",
    ]
    cluster.arguments = ()
    cluster.start()
    assert list(pids(cluster.url)) == ["group-1", "group-2"]
    got = tern("consume", "orders", "--group", "g", "--count", "2", url=cluster.url)
    assert sorted(got.out.split()) == ["a", "b"]


@pytest.mark.long
def test_a_process_that_dies_is_reported_and_started_again_if_that_was_asked_for(
    node_factory: NodeFactory,
) -> None:
    cluster = node_factory.cluster("--groups", "1", "--replicas", "0", "--delays", "0", "--restart")
    [pid] = pids(cluster.url).values()
    os.kill(pid, signal.SIGKILL)

    wait_until(lambda: "group-1-a is back" in cluster.stderr_text(), "a new life", seconds=30)
    assert f"error: group-1-a (pid {pid}) was ended by SIGKILL" in cluster.stderr_text()
    [again] = pids(cluster.url).values()
    assert again != pid


@pytest.mark.long
def test_a_process_that_dies_stays_away_and_all_end_with_the_one_who_started_them(
    node_factory: NodeFactory,
) -> None:
    """Also when that one is killed: nobody else would stop them."""
    cluster = node_factory.cluster("--groups", "2", "--replicas", "0", "--delays", "0")
    first, second = pids(cluster.url).values()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: "start it again: tern broker serve" in cluster.stderr_text(), "a report")
    assert alive(second)

    cluster.kill()

    wait_until(lambda: not alive(second), "the end of the second broker")


def test_wrong_ports_a_folder_in_use_and_a_smaller_cluster_are_one_clear_line(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    base = free_ports(4)
    with socket.create_server(("127.0.0.1", base + 2)):
        taken = tern(
            "cluster",
            "--data-dir",
            str(tmp_path / "c"),
            "--ports",
            str(base),
            "--replicas",
            "0",
            code=2,
        )
    assert taken.err == (
        f"error: group-2-a: 127.0.0.1:{base + 2} is taken by another process; "
        "stop it or choose other ports\n"
    )
    assert not list((tmp_path / "c").glob("group*"))
    cluster = node_factory.cluster("--groups", "2", "--replicas", "0", "--delays", "0")
    place = ["--data-dir", str(cluster.data_dir), "--ports", str(base)]
    used = tern("cluster", *place, code=2)
    assert "is in use by another node" in used.err
    cluster.stop()
    smaller = tern("cluster", *place, "--groups", "1", code=2)
    assert "has --groups 2, and they hold messages" in smaller.err
    for ran in (used, smaller):
        assert len(ran.err.splitlines()) == 1
