"""What an operator may set for a node, and the limits of each value.

A setting has one name everywhere: `flush_interval_ms` in the TOML file, `TERN_FLUSH_INTERVAL_MS`
in the environment. Environment goes over file, flags go over both. Sizes and durations may be
written for people ("1GiB", "60s") or as plain numbers of bytes and milliseconds. Types and limits
are checked by msgspec; the texts of refusals are ours.

A `NodeConfig` is complete and checked at birth; after that it is a value that is passed down, each
part getting what concerns it. This module reads neither files nor the environment: the cli does
that once and hands in what it found.
"""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec

from ternmq.core.errors import BadConfig, BadRequest
from ternmq.core.ids import check_name
from ternmq.core.units import (
    DAY_MS,
    GIB,
    HOUR_MS,
    KIB,
    MIB,
    MINUTE_MS,
    parse_duration_ms,
    parse_size,
)

ENV_PREFIX = "TERN_"
PORT_BASE = 7700
PORT_MAX = 65_535 - 81  # The farthest role, the gateway, listens on the base plus 81.

_SIZES = {"flush_bytes", "segment_size", "disk_free_min", "body_size_max"}
_SIZES |= {"inbound_max", "inbound_total_max", "retention_size", "cold_after"}
_WORDS = {"true": True, "yes": True, "on": True, "1": True}
_WORDS |= {"false": False, "no": False, "off": False, "0": False}


class Flush(StrEnum):
    """What may be lost when the machine (not the process) dies."""

    SYNC = "sync"
    """Nothing acknowledged is lost. Many producers share one fdatasync."""

    ASYNC = "async"
    """What came after the last flush: at most `flush_interval_ms` or `flush_bytes` of messages."""


class ReplicaLost(StrEnum):
    """What a master does without enough replicas in step."""

    READ_ONLY = "read-only"
    """Refuses messages until one is back."""
    CONTINUE = "continue"
    """Goes on alone: what it then takes is on one disk."""


class ReplicaAck(StrEnum):
    """When a message counts, besides being on the master's disk."""

    DISK = "disk"
    """Every in-sync replica has it on its disk."""
    MEMORY = "memory"
    """Every in-sync replica has it, perhaps not on its disk yet."""
    NONE = "none"
    """At once: replicas follow, and one that leads may lack something."""


class ColdReads(StrEnum):
    """Which server gives consumers the bytes of old messages."""

    MASTER = "master"
    REPLICA = "replica"
    """A replica in step, where there is one; leases come from the master all the same."""


def about(text: str, low: int | None = None, high: int | None = None) -> msgspec.Meta:
    """What a setting is for, and its limits (both ends allowed)."""
    return msgspec.Meta(description=text, ge=low, le=high)


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
    broker_group: Annotated[str, about("name of the broker group that this node is")] = "main"
    registry: Annotated[
        str,
        about("where meta keeps names: sqlite, postgresql, mysql or zookeeper url; empty: a file"),
    ] = ""
    auto_create_topics: Annotated[bool, about("sending to an unknown topic makes it")] = True

    flush: Annotated[
        Flush, about("sync: an ack means on disk; async: handed to the operating system")
    ] = Flush.SYNC
    flush_interval_ms: Annotated[
        int, about("async only: flushed at least this often", 1, 60_000)
    ] = 100
    flush_bytes: Annotated[
        int, about("async only: flushed when so much is not flushed yet", 64 * KIB, GIB)
    ] = 16 * MIB
    segment_size: Annotated[int, about("size of one message log file", 8 * MIB, 4 * GIB)] = GIB
    checkpoint_interval_ms: Annotated[
        int,
        about(
            "how often positions are noted, so that a start after a crash reads little",
            100,
            HOUR_MS,
        ),
    ] = 5_000
    disk_free_min: Annotated[
        int,
        about("with less free space messages are refused; consuming goes on", 0, 1024 * GIB),
    ] = 64 * MIB

    delivery_records_keep: Annotated[
        int,
        about("bytes of delivery records kept for the archive and the trace", 0, 1024 * GIB),
    ] = GIB

    disk_warn_percent: Annotated[
        int, about("from here on expired segments go at any hour", 1, 100)
    ] = 75
    disk_forced_percent: Annotated[
        int, about("from here on the oldest segments go, expired or not", 1, 100)
    ] = 85
    disk_full_percent: Annotated[
        int, about("from here on messages are refused; consuming goes on", 1, 100)
    ] = 90
    retention_ms: Annotated[
        int, about("segments whose last message is older go; 0: never by age", 0, 3_650 * DAY_MS)
    ] = 3 * DAY_MS
    retention_size: Annotated[
        int, about("above this the oldest segments go; 0: no limit", 0, 1024 * 1024 * GIB)
    ] = 0
    retention_hour: Annotated[
        int, about("expired segments go only in this hour of the day, UTC; -1: at any", -1, 23)
    ] = -1
    retention_interval_ms: Annotated[
        int, about("how often it is looked what may go", 100, HOUR_MS)
    ] = 10_000
    retention_keep_unread: Annotated[
        bool, about("keep what a group still needs, also when the disk gets full")
    ] = False
    dead_letter_keep_ms: Annotated[
        int, about("dead letters are gone after this; 0: kept like messages", 0, 3_650 * DAY_MS)
    ] = 3 * DAY_MS

    lease_ms: Annotated[
        int, about("how long a consumer holds messages without a sign of life", 100, DAY_MS)
    ] = 60_000
    session_grace_ms: Annotated[
        int, about("how long a consumer that lost its connection keeps its messages", 0, HOUR_MS)
    ] = 5_000

    half_first_check_ms: Annotated[
        int, about("when a transaction that has not ended is first asked about", 10, DAY_MS)
    ] = 6_000
    half_check_interval_ms: Annotated[
        int, about("how often it is asked about after that", 10, DAY_MS)
    ] = 30_000
    half_checks_max: Annotated[
        int, about("how often at most, before it is dropped for a person to decide", 1, 1_000)
    ] = 15
    half_parked_ms: Annotated[
        int, about("how long a dropped transaction waits for a person", 1_000, 30 * DAY_MS)
    ] = 3 * DAY_MS
    half_expires_ms: Annotated[
        int, about("a detached transaction without its own expiry ends so", 1_000, 30 * DAY_MS)
    ] = DAY_MS

    replica_lost: Annotated[
        ReplicaLost, about("without a replica in step: read-only, or continue alone")
    ] = ReplicaLost.READ_ONLY
    replica_timeout_ms: Annotated[
        int, about("a replica that does not answer for so long is late", 100, HOUR_MS)
    ] = 3_000
    replica_ack: Annotated[
        ReplicaAck, about("a message counts when replicas have it on disk, in memory, or at once")
    ] = ReplicaAck.DISK
    cold_reads: Annotated[
        ColdReads, about("who gives consumers the bytes of old messages: master or replica")
    ] = ColdReads.MASTER
    cold_after: Annotated[
        int, about("old: so far behind the end of the log, or no longer in memory", 0, 1024 * GIB)
    ] = GIB
    aside_max: Annotated[
        int, about("so often a replica moves useless data aside by itself; 0: never", 0, 100)
    ] = 2
    failover: Annotated[
        bool, about("a replica leads when its master is dead; off: people decide")
    ] = True

    body_size_max: Annotated[int, about("largest body of a message, compressed", 1, 4 * MIB)] = (
        4 * MIB
    )
    connections_max: Annotated[int, about("clients at one time", 1, 1_000_000)] = 10_000
    heartbeat_ms: Annotated[
        int, about("how often an idle client says that it is there", 100, 60_000)
    ] = 3_000
    server_heartbeat_ms: Annotated[
        int, about("meta: how often a server says that it is there", 100, 60_000)
    ] = 3_000
    server_dead_after_ms: Annotated[
        int, about("meta: a server that was silent for so long is dead", 300, 600_000)
    ] = 10_000
    inbound_max: Annotated[
        int, about("unanswered bytes of one client before reading from it pauses", 8 * MIB, GIB)
    ] = 16 * MIB
    inbound_total_max: Annotated[
        int, about("unanswered bytes of all clients together", 16 * MIB, 64 * GIB)
    ] = 256 * MIB

    delay_server: Annotated[
        bool, about("`tern up` runs a delay server, for messages for later")
    ] = True
    delay_wal_dir: Annotated[
        str, about("where the delay server writes first; empty: below `data_dir`")
    ] = ""
    delay_hour_ms: Annotated[
        int, about("how much time one schedule log of the delay server holds", MINUTE_MS, DAY_MS)
    ] = HOUR_MS
    delay_tick_ms: Annotated[
        int, about("how often the delay server looks for what is due", 10, 1_000)
    ] = 100
    delay_max_days: Annotated[
        int, about("how far ahead a message may be due; farther is refused", 1, 36_525)
    ] = 731
    delay_fragments: Annotated[
        int, about("parts of each hour, which wait for slow brokers apart from each other", 1, 256)
    ] = 8
    delay_workers: Annotated[
        int, about("parts that the delay server dispatches at the same time", 1, 64)
    ] = 2

    metrics_port: Annotated[
        int, about("where Prometheus finds /metrics over HTTP, on `host`; 0: nowhere", 0, 65_535)
    ] = 0
    log_level: Annotated[str, about("debug, info, warning or error")] = "info"
    log_json: Annotated[bool, about("one JSON object per log line, also on a terminal")] = False

    def __post_init__(self) -> None:
        for setting in settings():
            _converted(setting, getattr(self, setting.name))
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise BadConfig(
                f"log_level must be debug, info, warning or error, got {self.log_level!r}"
            )
        if not self.host:
            raise BadConfig("host must not be empty; write 0.0.0.0 to listen on every address")
        if self.inbound_total_max < self.inbound_max:
            raise BadConfig("inbound_total_max must not be less than inbound_max")
        if self.server_dead_after_ms < 2 * self.server_heartbeat_ms:
            raise BadConfig("server_dead_after_ms must be at least twice server_heartbeat_ms")
        if self.ports <= self.metrics_port <= self.delay_port:
            raise BadConfig(
                f"metrics_port {self.metrics_port} is one of the node's own ports "
                f"({self.ports} to {self.delay_port}); choose another one"
            )
        try:
            check_name("broker group", self.broker_group)
        except BadRequest as error:
            raise BadConfig(f"broker_group: {error}") from error

    @property
    def meta_port(self) -> int:
        return self.ports

    @property
    def broker_port(self) -> int:
        return self.ports + 1

    @property
    def delay_port(self) -> int:
        return self.ports + 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table in docs/configuration.md."""

    name: str
    default: Any
    kind: Any
    """Its annotated type, as msgspec checks it."""

    @property
    def text(self) -> str:
        """What it is for."""
        return str(self._about.description)

    @property
    def limits(self) -> tuple[int, int] | None:
        """The least and the largest value."""
        low, high = self._about.ge, self._about.le
        return None if low is None or high is None else (int(low), int(high))

    @property
    def _about(self) -> msgspec.Meta:
        found: msgspec.Meta = self.kind.__metadata__[0]
        return found

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper()


@cache
def settings() -> tuple[Setting, ...]:
    """Every setting there is, in the order of the table."""
    hints = get_type_hints(NodeConfig, include_extras=True)
    return tuple(
        Setting(name=item.name, default=item.default, kind=hints[item.name])
        for item in fields(NodeConfig)
    )


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
                values[name] = _converted(known[name], _read(known[name], value))
    return NodeConfig(**values)


def _read(setting: Setting, value: Any) -> Any:
    """What people write for truth, numbers, sizes and durations, as plain values."""
    if isinstance(setting.default, bool):
        return _WORDS.get(str(value).lower(), value)
    if not isinstance(value, str):
        return value
    try:
        match setting.default:
            case int() if value.strip().isdecimal():
                return int(value)
            case int() if setting.name.endswith("_ms"):
                return parse_duration_ms(value)
            case int() if setting.name in _SIZES:
                return parse_size(value)
            case _:
                return value
    except BadRequest as error:
        raise BadConfig(f"{setting.name}: {error}") from error


def _converted(setting: Setting, value: Any) -> Any:
    """A plain value as the type of the setting, within its limits."""
    try:
        return msgspec.convert(value, setting.kind, dec_hook=_to_path)
    except msgspec.ValidationError:
        wanted = _wanted(setting, value)
        raise BadConfig(f"{setting.name} must be {wanted}, got {value!r}") from None


def _to_path(kind: type[Any], value: Any) -> Path:
    """The one type of ours that msgspec does not know."""
    if not isinstance(value, str | Path) or not str(value):
        raise msgspec.ValidationError
    return Path(value)


def _wanted(setting: Setting, value: Any) -> str:
    match setting.default:
        case bool():
            return "true or false"
        case int() if type(value) is int and setting.limits is not None:
            return "{} to {}".format(*setting.limits)
        case int():
            return "a whole number"
        case StrEnum():
            return " or ".join(type(setting.default))
        case Path():
            return "a path"
        case _:
            return "a text"


def _nearest(name: str, known: list[str], *, cutoff: float = 0.6) -> str:
    found = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return f"; did you mean {found[0]!r}?" if found else ""
