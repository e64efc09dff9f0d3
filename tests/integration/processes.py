"""Real nodes and real commands for the integration tests: subprocesses, temp folders, free ports.

Output goes to files, so that a full pipe never stops a node and a killed one can still be read.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ternmq.rpc.node_proof import NodeSecret
from tests.integration.fork_server import ForkedProcess, fork_server
from tests.integration.namespaces import Place
from tests.waiting import wait_until

READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 10.0
COMMAND_SECONDS_MAX = 60.0
COMMAND = (sys.executable, "-m", "ternmq.cli.main")
TRACEBACK = "Traceback (most recent call last)"

# Below the range that the kernel hands out for outgoing connections.
PORTS = range(10_000, 32_000)

SECRET_TEXT = "what all servers of the integration tests know"
SHARED_SECRET = NodeSecret(SECRET_TEXT, "the tests")


def shared_secret_file(folder: Path) -> dict[str, str]:
    """The setting by which servers that are processes of their own know it."""
    path = folder / "shared-node-secret"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(SECRET_TEXT, encoding="ascii")
    return {"TERN_NODE_SECRET_FILE": str(path)}


def free_ports(count: int = 3) -> int:
    """The first of some neighbouring ports that nobody listens on."""
    for _ in range(200):
        base = random.choice(PORTS)
        try:
            for port in range(base, base + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return base
    raise AssertionError(f"no {count} free ports in a row were found")


@dataclass(slots=True, kw_only=True)
class Node:
    """One `tern up`; can be killed, stopped and started again on the same data and ports."""

    port: int
    data_dir: Path
    output_dir: Path
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] | None = None
    prefix: Sequence[str] = ()
    """What runs the node, for example strace with its options."""
    forked: bool = True
    """Else it starts as it does for people, with all its imports."""
    host: str = "127.0.0.1"
    starts: int = 0
    _process: "subprocess.Popen[bytes] | ForkedProcess | None" = None

    @property
    def url(self) -> str:
        return f"tern://{self.host}:{self.port}"

    @property
    def process(self) -> "subprocess.Popen[bytes] | ForkedProcess":
        assert self._process is not None, "the node was never started"
        return self._process

    @property
    def pid(self) -> int:
        """Of the node itself, also when something else runs it."""
        if not self.prefix:
            return self.process.pid
        return int((self.data_dir / "lock").read_text(encoding="ascii"))

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start it without waiting for anything."""
        assert not self.running, "the node is already running"
        self.starts += 1
        arguments = [*self.command(), *self.arguments]
        shared = shared_secret_file(self.output_dir.parent)
        environment = clean_environment({**shared, **(self.environment or {})})
        with (
            Path(os.devnull).open("rb") as nothing,
            self._stdout_path.open("wb") as out,
            self._stderr_path.open("wb") as err,
        ):
            if self.forked and not self.prefix:
                self._process = fork_server().start(
                    arguments,
                    environment=environment,
                    descriptors=(nothing.fileno(), out.fileno(), err.fileno()),
                )
            else:
                self._process = subprocess.Popen(
                    [*self.prefix, *COMMAND, *arguments],
                    stdin=nothing,
                    stdout=out,
                    stderr=err,
                    env=environment,
                )

    def command(self) -> list[str]:
        """Which `tern` command it is."""
        return ["up", "--data-dir", str(self.data_dir), "--ports", str(self.port)]

    def wait_ready(self, *, seconds: float = READY_SECONDS_MAX) -> None:
        def ready() -> bool:
            assert self.running, (
                f"the node ended ({self.process.returncode}):\n{self._last_error()}"
            )
            return "\n" in self.stdout_text()

        wait_until(ready, "the ready line", seconds=seconds)

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def kill(self) -> None:
        """SIGKILL: no flush, no goodbye."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(STOP_SECONDS_MAX)

    def stop(self) -> int:
        """SIGTERM; returns the exit code, fails if the node takes longer than it may."""
        if self.running:
            os.kill(self.pid, signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("the node did not stop in time") from None

    def restart(self) -> None:
        """Start again on the same data; a running node is stopped first."""
        if self.running:
            assert self.stop() == 0
        self.start()

    def stdout_text(self) -> str:
        """Of the latest start."""
        return self._stdout_path.read_text(encoding="utf-8")

    def stderr_text(self) -> str:
        """Of every start so far."""
        paths = [self.output_dir / f"stderr-{number}" for number in range(1, self.starts + 1)]
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)

    def finish(self) -> None:
        """What a fixture does at the end: stop, and fail if the node complained."""
        if self.running:
            assert self.stop() == 0, self._last_error()
        assert TRACEBACK not in self.stderr_text(), self.stderr_text()

    @property
    def _stdout_path(self) -> Path:
        return self.output_dir / f"stdout-{self.starts}"

    @property
    def _stderr_path(self) -> Path:
        return self.output_dir / f"stderr-{self.starts}"

    def _last_error(self) -> str:
        return self._stderr_path.read_text(encoding="utf-8", errors="replace")


@dataclass(slots=True, kw_only=True)
class DelayServer(Node):
    """One `tern delay serve`, for the meta server at `meta`."""

    meta: str
    name: str

    def command(self) -> list[str]:
        listening = ["--port", str(self.port + 2), "--data-dir", str(self.data_dir)]
        return ["delay", "serve", "--url", self.meta, "--name", self.name, *listening]


@dataclass(slots=True, kw_only=True)
class MetaServer(Node):
    """One `tern meta serve` over a registry."""

    registry: str

    def command(self) -> list[str]:
        place = ["--port", str(self.port), "--data-dir", str(self.data_dir)]
        return ["meta", "serve", "--registry", self.registry, *place]


@dataclass(slots=True, kw_only=True)
class BrokerServer(Node):
    """One `tern broker serve`, for the meta servers at `meta`."""

    meta: str
    name: str

    def command(self) -> list[str]:
        listening = ["--port", str(self.port + 1), "--data-dir", str(self.data_dir)]
        return ["broker", "serve", "--url", self.meta, "--name", self.name, *listening]


@dataclass(slots=True, kw_only=True)
class Cluster(Node):
    """One `tern cluster`: a process for each server."""

    def command(self) -> list[str]:
        return ["cluster", "--data-dir", str(self.data_dir), "--ports", str(self.port)]


def _placed(environment: Mapping[str, str] | None, place: Place | None) -> dict[str, Any]:
    """Settings of a server that runs in a network namespace, or here."""
    if place is None:
        return {"environment": environment}
    address = {"TERN_HOST": place.address, "TERN_INSECURE": "true"}
    return {
        "environment": {**(environment or {}), **address},
        "prefix": place.prefix,
        "host": place.address,
    }


class NodeFactory:
    """Makes nodes in one temp folder and looks after them until the test ends."""

    def __init__(self, folder: Path) -> None:
        self.forked = True
        """See `Node.forked`."""
        self._folder = folder
        self._made: list[Node] = []

    def __call__(
        self,
        *,
        flush: str | None = None,
        auto_create: bool = True,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        start: bool = True,
    ) -> Node:
        home = self._folder / f"node-{len(self._made) + 1}"
        home.mkdir()
        extra = [*arguments]
        if flush is not None:
            extra += ["--flush", flush]
        if not auto_create:
            extra.append("--no-auto-create")
        node = Node(
            port=free_ports(),
            data_dir=home / "data",
            output_dir=home,
            arguments=extra,
            environment=environment,
            prefix=prefix,
            forked=self.forked,
        )
        self._made.append(node)
        if start:
            node.start()
        return node

    def delay_server(
        self,
        node: Node,
        name: str = "later",
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        start: bool = True,
    ) -> DelayServer:
        """A delay server apart from `node`, which is meta and broker to it."""
        home = self._folder / f"delay-{len(self._made) + 1}"
        home.mkdir()
        server = DelayServer(
            port=free_ports(),
            data_dir=home / "data",
            output_dir=home,
            arguments=arguments,
            environment=environment,
            prefix=prefix,
            meta=node.url,
            name=name,
        )
        self._made.append(server)
        if start:
            server.start()
        return server

    def meta_server(
        self,
        registry: str,
        *,
        environment: Mapping[str, str] | None = None,
        place: Place | None = None,
        start: bool = True,
    ) -> MetaServer:
        """A meta server over that registry."""
        home = self._folder / f"meta-{len(self._made) + 1}"
        home.mkdir()
        server = MetaServer(
            port=free_ports(),
            data_dir=home / "data",
            output_dir=home,
            registry=registry,
            **_placed(environment, place),
        )
        self._made.append(server)
        if start:
            server.start()
        return server

    def broker_server(
        self,
        meta: str,
        name: str,
        *,
        environment: Mapping[str, str] | None = None,
        place: Place | None = None,
        start: bool = True,
    ) -> BrokerServer:
        """One broker of a broker group, for the meta servers at that url."""
        home = self._folder / f"broker-{len(self._made) + 1}"
        home.mkdir()
        server = BrokerServer(
            port=free_ports(),
            data_dir=home / "data",
            output_dir=home,
            meta=meta,
            name=name,
            **_placed(environment, place),
        )
        self._made.append(server)
        if start:
            server.start()
        return server

    def cluster(
        self,
        *arguments: str,
        start: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> Cluster:
        """A whole cluster by `tern cluster`, of at most ten servers."""
        home = self._folder / f"cluster-{len(self._made) + 1}"
        home.mkdir()
        cluster = Cluster(
            port=free_ports(10),
            data_dir=home / "data",
            output_dir=home,
            arguments=arguments,
            environment=environment,
        )
        self._made.append(cluster)
        if start:
            cluster.start()
        return cluster

    def finish(self) -> None:
        """Stop all of them, the youngest first, then complain about any of them."""
        complaints = []
        for node in reversed(self._made):
            if not node.starts:
                continue
            try:
                node.finish()
            except AssertionError as error:
                complaints.append(str(error))
        assert not complaints, "\n".join(complaints)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def tern(
    *arguments: str,
    url: str | None = None,
    stdin: bytes = b"",
    code: int | None = 0,
    password: str | None = None,
    keys: str | None = None,
) -> Ran:
    """Run a `tern` command to its end; `code=None` takes any exit code."""
    given = {"TERN_URL": url, "TERN_PASSWORD": password, "TERN_KEYS": keys}
    environment = clean_environment({name: text for name, text in given.items() if text})
    with ExitStack() as stack:
        typed, out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        typed.write(stdin)
        typed.seek(0)
        process = fork_server().start(
            arguments,
            environment=environment,
            descriptors=(typed.fileno(), out.fileno(), err.fileno()),
        )
        try:
            ended = process.wait(COMMAND_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        out.seek(0)
        err.seek(0)
        ran = Ran(
            code=ended,
            out=out.read().decode("utf-8", "replace"),
            err=err.read().decode("utf-8", "replace"),
        )
    assert code is None or ran.code == code, ran
    assert TRACEBACK not in ran.err, ran.err
    return ran


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without settings of its own, and wide enough for help texts."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TERN_")}
    # Its own tests start a console; beside a thousand other nodes it would only cost time.
    own = {"COLUMNS": "200", "NO_COLOR": "1", "TERN_CONSOLE": "false"}
    return kept | own | dict(extra or {})
