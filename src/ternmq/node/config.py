"""Everything that can be set for a node: what belongs to the process, and the parts of the others.

A setting has one name everywhere: `flush_interval_ms` in the TOML file, `TERN_FLUSH_INTERVAL_MS`
in the environment. Environment goes over file, flags go over both. What the settings of a part are
stands next to that part; here they come together, and nowhere else is all of it known.

A `NodeConfig` is complete and checked at birth; after that it is a value of which each part gets
its own. This module reads neither files nor the environment: the cli does that once and hands in
what it found.
"""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from ternmq.broker.config import BrokerConfig
from ternmq.core.errors import BadConfig, BadRequest
from ternmq.core.ids import check_name
from ternmq.core.settings import ENV_PREFIX, Setting, about, all_settings, check, make
from ternmq.delay.config import DelayConfig
from ternmq.discovery.url import read_url
from ternmq.meta.config import MetaConfig
from ternmq.rpc.address import is_loopback
from ternmq.security.tls.config import HOW, TlsConfig

PORT_BASE = 7700
PORT_MAX = 65_535 - 81  # The farthest role, the gateway, listens on the base plus 81.


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Everything that can be set for `tern up`."""

    data_dir: Annotated[Path, about("where everything is stored")] = Path("tern-data")
    ports: Annotated[
        int,
        about(
            "first port: meta listens here, broker and delay server on the next ones", 1, PORT_MAX
        ),
    ] = PORT_BASE
    host: Annotated[str, about("address to listen on; 0.0.0.0 for all of this machine")] = (
        "127.0.0.1"
    )
    insecure: Annotated[
        bool,
        about("listen on other addresses than loopback, although everybody there is let in"),
    ] = False
    advertised_host: Annotated[
        str, about("address that clients are told to use; empty: `host`, or the machine's name")
    ] = ""
    advertised_ports: Annotated[
        int,
        about("first port that clients are told, where ports are mapped; 0: `ports`", 0, PORT_MAX),
    ] = 0
    url: Annotated[
        str, about("the meta servers, for a broker or delay server that is a process of its own")
    ] = ""
    node_secret_file: Annotated[
        str,
        about(
            "file with the secret that all servers of the cluster share; empty: `node-secret` in "
            "`data_dir`, made by a meta server or `tern up`"
        ),
    ] = ""
    unproven_servers_until: Annotated[
        str,
        about(
            "a time (2026-11-20T06:00Z, at most 7 days ahead) until which servers of release 0.1, "
            "which cannot prove themselves, are servers of the cluster: for an upgrade"
        ),
    ] = ""
    broker_group: Annotated[str, about("name of the broker group that this node is")] = "main"
    delay_server: Annotated[
        bool, about("`tern up` runs a delay server, for messages for later")
    ] = True
    console: Annotated[
        bool,
        about("`tern up` runs the web console beside it, on loopback, on the first port plus 80"),
    ] = True
    rocketmq_port: Annotated[
        int,
        about(
            "`tern up` runs the gateway for RocketMQ clients beside it, on loopback, on this port; "
            "0: none",
            0,
            65_535,
        ),
    ] = 0
    metrics_port: Annotated[
        int, about("where Prometheus finds /metrics over HTTP, on `host`; 0: nowhere", 0, 65_535)
    ] = 0
    log_level: Annotated[str, about("debug, info, warning or error")] = "info"
    log_json: Annotated[bool, about("one JSON object per log line, also on a terminal")] = False
    tls: TlsConfig = field(default_factory=TlsConfig)
    meta: MetaConfig = field(default_factory=MetaConfig)
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    delay: DelayConfig = field(default_factory=DelayConfig)

    def __post_init__(self) -> None:
        check(self)
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise BadConfig(
                f"log_level must be debug, info, warning or error, got {self.log_level!r}"
            )
        if not self.host:
            raise BadConfig("host must not be empty; write 0.0.0.0 to listen on every address")
        if self.exposed and not self.insecure:
            raise BadConfig(
                f"host = {self.host!r} is reached from other machines, and whoever reaches it may "
                "send, read and delete. Listen on 127.0.0.1; or let everybody log in: tls = true "
                "and security = true; or let in only who has a certificate of yours: tls = true "
                'and tls_client_certificates = "required" (tern secure init DIR makes the files); '
                "or, where a private network or a firewall keeps others out, "
                "write insecure = true (--insecure, TERN_INSECURE=true)"
            )
        if self.ports <= self.metrics_port <= self.delay_port:
            raise BadConfig(
                f"metrics_port {self.metrics_port} is one of the node's own ports "
                f"({self.ports} to {self.delay_port}); choose another one"
            )
        if self.unproven_servers_until and (self.tls.tls or self.meta.listener.security):
            raise BadConfig(
                "unproven_servers_until lets servers of release 0.1 in, and they know neither tls "
                "nor security: upgrade all servers first, then set tls and security"
            )
        try:
            check_name("broker group", self.broker_group)
        except BadRequest as error:
            raise BadConfig(f"broker_group: {error}") from error

    def joined_url(self, url: str) -> str:
        """The url of the meta servers, where it fits the settings for TLS; raises `BadConfig`."""
        named = read_url(url)
        if self.tls.tls and named.tls is None:
            raise BadConfig(
                f"tls = true and the meta servers are at {url}, in the clear: write terns://… and "
                "set tls = true there too; all servers of a cluster speak TLS, or none"
            )
        if not self.tls.tls and named.tls is not None:
            raise BadConfig(
                f"the meta servers at {url} speak TLS and this server does not: set tls = true, "
                f"and the files ({HOW}); all servers of a cluster speak TLS, or none"
            )
        return url

    @property
    def exposed(self) -> bool:
        """Other machines may reach it, without having to prove anything."""
        proven = self.tls.proves_clients or (self.tls.tls and self.meta.listener.security)
        return not is_loopback(self.host) and not proven

    @property
    def meta_port(self) -> int:
        return self.ports

    @property
    def broker_port(self) -> int:
        return self.ports + 1

    @property
    def delay_port(self) -> int:
        return self.ports + 2

    @property
    def console_port(self) -> int:
        return self.ports + 80


@cache
def settings() -> tuple[Setting, ...]:
    """Every setting there is, in the order of the table."""
    found: dict[str, Setting] = {}
    for setting in all_settings(NodeConfig):
        found.setdefault(setting.name, setting)
    return tuple(found.values())


def parse_file(text: str, *, source: str) -> dict[str, Any]:
    """The settings of a TOML file; an unknown one is an error that names the nearest known one."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadConfig(f"{source} is not TOML: {error}") from error
    known = [setting.name for setting in settings()]
    for name in found:
        if name not in known:
            raise BadConfig(f"{source}: there is no setting {name!r}{_nearest(name, known)}")
    return found


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings in the environment. Other TERN_ names belong to others and are left alone."""
    names = {setting.env: setting.name for setting in settings()}
    return {names[key]: value for key, value in environment.items() if key in names}


def suspects(environment: Mapping[str, str]) -> list[str]:
    """Warnings about TERN_ names that look like a misspelt setting.

    Not errors: an orchestrator that calls a service "tern" sets TERN_PORT and the like by itself.
    """
    known = [setting.env for setting in settings()]
    return [
        f"{key} is not a setting{_nearest(key, known)}"
        for key in sorted(environment)
        if key.startswith(ENV_PREFIX) and key not in known and _nearest(key, known, cutoff=0.85)
    ]


def build(*sources: Mapping[str, Any]) -> NodeConfig:
    """Make the config; each source goes over the ones before it, None means not given."""
    values: dict[str, Any] = {}
    known = {setting.name: setting for setting in settings()}
    for source in sources:
        for name, value in source.items():
            if name not in known:
                raise BadConfig(f"there is no setting {name!r}{_nearest(name, list(known))}")
            if value is not None:
                values[name] = known[name].read(value)
    return make(NodeConfig, values)


def _nearest(name: str, known: list[str], *, cutoff: float = 0.6) -> str:
    found = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return f"; did you mean {found[0]!r}?" if found else ""
