"""What a cluster on one machine is made of: which processes, with which folders, ports, arguments.

Pure: from a shape and a place to a list of `Planned`, in the order they start. Ports follow each
other from the first one: meta servers, brokers group by group, delay servers, their replicas. What
is kept of a cluster in its folder: `cluster_folder`.
"""

from dataclasses import dataclass, field
from pathlib import Path

from ternmq.core.errors import BadConfig
from ternmq.discovery.url import format_url

HOST = "127.0.0.1"
SECRET_FILE = "node-secret"
"""What all of them share."""
TLS_FOLDER = "tls"
"""Certificates, where it has them."""
PORT_MAX = 65_535
SERVERS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How many servers of each kind a local cluster has."""

    groups: int = 2
    replicas: int = 2
    metas: int = 1
    delays: int = 1

    @property
    def servers(self) -> int:
        return self.metas + (self.groups + self.delays) * (1 + self.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One process."""

    name: str
    role: str
    port: int
    arguments: tuple[str, ...]
    """Of the `tern` command."""
    group: str = ""
    """Of brokers and delay servers."""

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """A whole cluster. Meta servers are there before anybody else starts."""

    metas: list[Planned]
    brokers: list[Planned]
    delays: list[Planned]
    gateways: list[Planned] = field(default_factory=list)
    tls: bool = False

    @property
    def url(self) -> str:
        """All meta servers, as servers and careful clients are given them."""
        return format_url([meta.address for meta in self.metas], tls=self.tls)

    @property
    def groups(self) -> set[str]:
        """The names of the broker groups."""
        return {broker.name.rpartition("-")[0] for broker in self.brokers}

    @property
    def everybody(self) -> list[Planned]:
        return [*self.metas, *self.brokers, *self.delays, *self.gateways]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """More arguments, for all of a kind."""

    everybody: tuple[str, ...] = ()
    brokers: tuple[str, ...] = ()
    tls: bool = False
    """All of them speak TLS."""
    rocketmq_port: int = 0
    """A gateway for RocketMQ clients listens there; 0: there is none."""


def make_plan(shape: Shape, folder: Path, base: int, extra: Extra | None = None) -> ClusterPlan:
    """Which processes make up this cluster."""
    extra = extra or Extra()
    if shape.servers > SERVERS_MAX:
        raise BadConfig(f"{shape.servers} servers are too many for one machine; at most 100")
    if not 1 <= base <= PORT_MAX - shape.servers + 1:
        raise BadConfig(
            f"--ports {base}: {shape.servers} servers need {shape.servers} ports, "
            f"so the first one is 1 to {PORT_MAX - shape.servers + 1}"
        )
    ports = iter(range(base, base + shape.servers))

    def server(name: str, role: str, *arguments: str, group: str = "") -> Planned:
        port = next(ports)
        place = (
            "--port",
            str(port),
            "--host",
            HOST,
            "--advertised-host",
            HOST,
            "--data-dir",
            str(folder / name),
            "--node-secret-file",
            str(folder / SECRET_FILE),
        )
        words = (role, "serve", *arguments, *place, *extra.everybody)
        return Planned(name=name, role=role, port=port, arguments=words, group=group)

    registry = f"sqlite:///{folder / 'registry.db'}"
    metas = [
        server(f"meta-{number + 1}", "meta", "--registry", registry)
        for number in range(shape.metas)
    ]
    url = format_url([meta.address for meta in metas], tls=extra.tls)
    brokers = [
        server(
            f"{name}-{letter}", "broker", "--url", url, "--name", name, *extra.brokers, group=name
        )
        for name in (f"group-{number + 1}" for number in range(shape.groups))
        for letter in "abcdefghij"[: shape.replicas + 1]
    ]
    delays = [
        server(f"{name}{letter}", "delay", "--url", url, "--name", name, group=name)
        for letter in ("", *(f"-{letter}" for letter in "bcdefghij"[: shape.replicas]))
        for name in (f"delay-{number + 1}" for number in range(shape.delays))
    ]
    gateways = [planned_gateway(url, extra.rocketmq_port)] if extra.rocketmq_port else []
    return ClusterPlan(
        metas=metas, brokers=brokers, delays=delays, gateways=gateways, tls=extra.tls
    )


def planned_gateway(url: str, port: int) -> Planned:
    """The gateway for RocketMQ clients, over a cluster at this url."""
    arguments = ("gateway", "serve", "--url", url, "--host", HOST, "--port", str(port))
    return Planned(name="rocketmq", role="gateway", port=port, arguments=arguments)
