"""Real PostgreSQL, MariaDB and SQLite for tests: started on free ports in temporary folders.

A server refuses to run as root, so root starts it as the user that its package made. Each test
gets a database of its own. What is not installed is skipped by name; `make test` installs it when
run as root. The servers do not sync to disk: the tests kill applications and server processes,
never the machine. Benchmarks take servers that do (`Servers(durable=True)`).
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, create_engine, text
from sqlalchemy.exc import OperationalError

from tests.integration.processes import free_ports
from tests.waiting import wait_until

START_SECONDS_MAX = 60.0
KINDS = ("sqlite", "postgresql", "mariadb")
DRIVERS = {
    "sqlite": ("sqlite", "sqlite+aiosqlite"),
    "postgresql": ("postgresql+psycopg", "postgresql+asyncpg"),
    "mariadb": ("mysql+pymysql", "mysql+asyncmy"),
}


@dataclass(frozen=True, slots=True)
class TestDatabase:
    """One empty database."""

    __test__ = False
    kind: str
    address: URL
    server: "Server | None" = None

    @property
    def url(self) -> str:
        """For a plain engine."""
        return self._with(DRIVERS[self.kind][0])

    @property
    def async_url(self) -> str:
        return self._with(DRIVERS[self.kind][1])

    def _with(self, driver: str) -> str:
        return self.address.set(drivername=driver).render_as_string(hide_password=False)

    def engine(self) -> Engine:
        return create_engine(self.url)


@dataclass(slots=True)
class Server:
    """One database server; can be killed and started again on the same data."""

    kind: str
    user: str | None
    """Whom it runs as; None: who runs the tests."""
    home: Path
    port: int = 0
    durable: bool = False
    """Every commit is on the disk, as in production."""
    made: int = 0
    _process: "subprocess.Popen[bytes] | None" = None
    _command: list[str] = field(default_factory=list)

    def prepare(self) -> None:
        data = self.home / "data"
        if self.kind == "postgresql":
            initdb, postgres = (str(_postgres(name)) for name in ("initdb", "postgres"))
            self._run(
                [
                    initdb,
                    "-D",
                    str(data),
                    "-U",
                    "tern",
                    "-A",
                    "trust",
                    "-N",
                    "-E",
                    "UTF8",
                    "--locale=C",
                ]
            )
            self._command = [
                postgres,
                "-D",
                str(data),
                "-k",
                str(self.home),
                "-p",
                str(self.port),
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                f"fsync={'on' if self.durable else 'off'}",
                "-c",
                "max_connections=200",
                "-c",
                "shared_buffers=32MB",
            ]
            return
        installer = shutil.which("mariadb-install-db") or "mysql_install_db"
        self._run(
            [
                installer,
                "--no-defaults",
                f"--datadir={data}",
                "--skip-test-db",
                "--auth-root-authentication-method=normal",
            ]
        )
        self._command = [
            str(_mariadbd()),
            "--no-defaults",
            f"--datadir={data}",
            f"--port={self.port}",
            f"--socket={self.home / 'socket'}",
            f"--pid-file={self.home / 'pid'}",
            "--bind-address=127.0.0.1",
            "--skip-log-bin",
            f"--innodb-flush-log-at-trx-commit={1 if self.durable else 2}",
            "--innodb-buffer-pool-size=32M",
            "--max-connections=300",
            "--skip-name-resolve",
        ]

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(
            command,
            user=self.user,
            env=self._environment(),
            capture_output=True,
            text=True,
            cwd=self.home,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _environment(self) -> dict[str, str]:
        """Its own folder for temporary files: MariaDB's names there are not unique enough."""
        return {**os.environ, "TMPDIR": str(self.home)}

    def start(self) -> None:
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                user=self.user,
                env=self._environment(),
                stdout=log,
                stderr=log,
                cwd=self.home,
            )
        wait_until(
            self._answers,
            f"the database, see {self.home / 'log'}",
            seconds=START_SECONDS_MAX,
            ignoring=OperationalError,
        )

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.home / "log").read_text()[-4_000:]
        with self._admin() as engine, engine.connect():
            return True

    def kill(self) -> None:
        """SIGKILL: what was committed comes back at the next start."""
        assert self._process is not None
        if self.kind == "postgresql":  # Its children would keep the old memory alive.
            os.kill(self._process.pid, signal.SIGQUIT)
        else:
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(20)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(
                self._process.pid,
                signal.SIGINT if self.kind == "postgresql" else signal.SIGKILL,
            )
            self._process.wait(20)

    def database(self) -> TestDatabase:
        """A new, empty one."""
        self.made += 1
        name = f"tern_{self.made}"
        with self._admin() as engine, engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.execute(text(f"CREATE DATABASE {name}"))
        return TestDatabase(self.kind, self._address(name), self)

    def _address(self, name: str) -> URL:
        user = "tern" if self.kind == "postgresql" else "root"
        return URL.create(
            DRIVERS[self.kind][0], username=user, host="127.0.0.1", port=self.port, database=name
        )

    def _admin(self) -> "_Disposing":
        return _Disposing(self._address("postgres" if self.kind == "postgresql" else "mysql"))


class _Disposing:
    """An engine that leaves no connection behind."""

    def __init__(self, address: URL) -> None:
        self._engine = create_engine(address)

    def __enter__(self) -> Engine:
        return self._engine

    def __exit__(self, *exc_info: object) -> None:
        self._engine.dispose()


def _postgres(name: str) -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    which = shutil.which(name)
    return found[-1] if found else Path(which) if which else None


def _mariadbd() -> Path | None:
    found = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin:/usr/local/sbin")
    return Path(found) if found else None


def _user(name: str) -> str | None:
    """Whom to run a server as; skips the test when root has nobody to become."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(name).pw_name
    except KeyError:
        pytest.skip(f"there is no user {name!r} to run the server as")


class Servers:
    """Servers of a test run, each started when the first test wants it."""

    def __init__(self, *, durable: bool = False) -> None:
        self._running: dict[str, Server] = {}
        self._durable = durable

    def get(self, kind: str) -> Server:
        if kind not in self._running:
            self._running[kind] = self._start(kind)
        return self._running[kind]

    def _start(self, kind: str) -> Server:
        if kind == "postgresql":
            if _postgres("initdb") is None:
                pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
            user = _user("postgres")
        else:
            if _mariadbd() is None:
                pytest.skip("MariaDB is not installed (apt-get install mariadb-server)")
            user = _user("mysql")
        home = Path(tempfile.mkdtemp(prefix=f"tern-{kind}-"))
        if user is not None:
            shutil.chown(home, user)
        server = Server(kind, user, home, port=free_ports(), durable=self._durable)
        server.prepare()
        server.start()
        return server

    def finish(self) -> None:
        for server in self._running.values():
            server.stop()
            shutil.rmtree(server.home, ignore_errors=True)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    running = Servers()
    try:
        yield running
    finally:
        running.finish()


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> TestDatabase:
    """An empty database of each kind in turn."""
    return make_database(request.param, servers, tmp_path)


def make_database(kind: str, servers: Servers, folder: Path) -> TestDatabase:
    if kind == "sqlite":
        return TestDatabase(kind, URL.create("sqlite", database=str(folder / "app.db")))
    return servers.get(kind).database()
