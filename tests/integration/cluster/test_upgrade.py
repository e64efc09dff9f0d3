"""A cluster of release 0.1 becomes one of this release, one process after the other, under load.

The released sources are taken out of the repository's history, so servers and a client of 0.1 are
the real ones. A clone without that commit skips this by name.
"""

import io
import signal
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import ternmq.sync
from tests.integration.processes import (
    BrokerServer,
    DelayServer,
    MetaServer,
    Node,
    NodeFactory,
    clean_environment,
    tern,
)
from tests.integration.verifiable_clients import balanced
from tests.waiting import wait_until

RELEASED = "466c921"
ROOT = Path(__file__).parents[3]
MORE = 300

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """The sources of 0.1."""
    git = ["git", "-C", str(ROOT), "archive", RELEASED, "src"]
    archive = subprocess.run(git, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"release 0.1 ({RELEASED}) is not in this clone")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(tmp_path / "released", filter="data")
    return tmp_path / "released" / "src"


@dataclass(slots=True)
class Client:
    """One application as a process, and what it wrote."""

    log: Path
    process: "subprocess.Popen[bytes]"

    def lines(self, word: str) -> list[str]:
        found = (line.split() for line in self.log.read_text(encoding="ascii").splitlines())
        return [" ".join(rest) for first, *rest in found if first == word]

    def alive(self) -> bool:
        return self.process.poll() is None


@dataclass(slots=True)
class Load:
    """Applications of both releases."""

    url: str
    folder: Path
    clients: list[Client] = field(default_factory=list)

    def start(self, name: str, source: Path) -> None:
        log = self.folder / f"{name}.log"
        command = [sys.executable, "-m", "tests.integration.cluster.upgrade_client"]
        with log.with_suffix(".err").open("wb") as err:
            process = subprocess.Popen(
                [*command, self.url, name, str(log)],
                stdin=subprocess.DEVNULL,
                stdout=err,
                stderr=err,
                cwd=ROOT,
                env=clean_environment({"PYTHONPATH": str(source)}),
            )
        self.clients.append(Client(log, process))

    def goes_on(self) -> None:
        """Each application sends and consumes more than it had by now."""
        for client in self.clients:
            wait_until(client.log.exists, f"{client.log.name}", seconds=30)
            for word in ("stored", "got"):
                self._more(client, word, len(client.lines(word)) + MORE)

    def _more(self, client: Client, word: str, wanted: int) -> None:
        def more() -> bool:
            assert client.alive(), client.log.with_suffix(".err").read_text()
            return len(client.lines(word)) > wanted

        wait_until(more, f"that {client.log.stem} goes on ({word})", seconds=60)

    def stop_sending(self) -> None:
        for client in self.clients:
            client.process.send_signal(signal.SIGTERM)
        wait_until(
            lambda: all("ended\n" in client.log.read_text() for client in self.clients),
            "the last answers",
            seconds=60,
        )

    def finish(self) -> None:
        for client in self.clients:
            client.process.send_signal(signal.SIGTERM)
            assert client.process.wait(30) == 0, client.log.with_suffix(".err").read_text()

    def stored(self) -> set[str]:
        return {body for client in self.clients for body in client.lines("stored")}

    def got(self) -> Counter[str]:
        return Counter(line.split()[1] for client in self.clients for line in client.lines("got"))


@contextmanager
def load(url: str, folder: Path) -> Iterator[Load]:
    running = Load(url, folder)
    try:
        yield running
    finally:
        for client in running.clients:
            if client.alive():
                client.process.kill()
                client.process.wait()


@pytest.mark.parametrize("meta_first", [True, False])
def test_one_process_at_a_time_with_clients_of_both_releases_loses_nothing(
    node_factory: NodeFactory, released: Path, tmp_path: Path, meta_first: bool
) -> None:
    meta, brokers, delays = cluster_of(node_factory, released, tmp_path)
    with load(meta.url, tmp_path) as running:
        running.start("old", released)
        running.start("new", Path(ternmq.__file__).parents[1])
        running.goes_on()
        order = [*brokers[1:], brokers[0], *delays[1:], delays[0]]
        for server in [meta, *order] if meta_first else [*order, meta]:
            upgrade(server)
            running.goes_on()
            if server is brokers[1]:
                lead_in_between(server, meta.url, running)
        running.stop_sending()
        stored = running.stored()
        wait_until(lambda: set(running.got()) >= stored, "that everything was consumed", seconds=60)
        running.finish()
        check(meta.url, running)


def cluster_of(
    node_factory: NodeFactory, released: Path, folder: Path
) -> tuple[MetaServer, list[BrokerServer], list[DelayServer]]:
    """Of 0.1, with the settings that the new release wants in the environment already."""
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    settings = {"TERN_UNPROVEN_SERVERS_UNTIL": until}
    registry = f"sqlite:///{folder}/registry.db"
    meta = node_factory.meta_server(registry, environment=settings, start=False)
    brokers = [
        node_factory.broker_server(meta.url, "main", environment=settings, start=False)
        for _ in range(3)
    ]
    delays = [node_factory.delay_server(meta, environment=settings, start=False) for _ in range(2)]
    for server in (meta, *brokers, *delays):
        server.prefix = ("env", f"PYTHONPATH={released}")
        server.start()
    return meta, brokers, delays


def upgrade(server: Node) -> None:
    assert server.stop() == 0
    server.prefix = ()
    server.start()


def lead_in_between(upgraded: BrokerServer, url: str, running: Load) -> None:
    """The one new member leads the old ones, and dies: an old one leads the new one."""
    tern("broker", "handover", "main", f"127.0.0.1:{upgraded.port + 1}", url=url)
    running.goes_on()
    upgraded.kill()
    running.goes_on()
    upgraded.start()
    with ternmq.sync.connect(url, app="operator") as mq:

        def whole() -> bool:
            [standing] = [each for each in mq.admin.standings() if each.broker_group == "main"]
            return len(standing.in_sync) == 3

        wait_until(whole, "that all members are in sync", seconds=60)


def check(url: str, running: Load) -> None:
    """Everything that was acknowledged is there, once, in order; every group adds up."""
    with ternmq.sync.connect(url, app="judge") as mq:
        read = [m.body.decode() for topic in ("orders", "keyed") for m in mq.read(topic)]
        assert running.stored() <= set(read) and len(set(read)) == len(read)
        for name in ("old", "new"):
            keyed = [body for body in read if body.startswith(f"{name}.keyed.")]
            assert keyed == [f"{name}.keyed.{number}" for number in range(len(keyed))]
        lines = mq.admin.ledger()
        assert lines and all(balanced(line) and line.acked == line.total for line in lines)
    assert "fail" not in tern("doctor", url=url).out
