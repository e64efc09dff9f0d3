"""Config: one name everywhere, environment over file, flags over both, checked at birth."""

from pathlib import Path
from typing import Any

import pytest

from ternmq.broker.config import Flush
from ternmq.core.errors import BadConfig
from ternmq.core.settings import all_settings
from ternmq.core.units import GIB, KIB, MIB
from ternmq.node.config import (
    NodeConfig,
    build,
    from_environment,
    parse_file,
    settings,
    suspects,
)

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"


def test_nothing_has_to_be_set() -> None:
    config = build()

    assert config == NodeConfig()
    assert (config.meta_port, config.broker_port) == (7700, 7701)
    assert config.host == "127.0.0.1"
    assert config.broker.flush is Flush.SYNC


def test_environment_goes_over_file_and_flags_over_both() -> None:
    file = parse_file('ports = 7800\nlease_ms = "30s"\nflush = "async"', source="node.toml")
    environment = from_environment({"TERN_PORTS": "7900", "TERN_LEASE_MS": "20s", "PATH": "/bin"})

    config = build(file, environment, {"ports": 8000, "flush": None})

    assert config.ports == 8000
    assert config.broker.lease_ms == 20_000
    assert config.broker.flush is Flush.ASYNC


@pytest.mark.parametrize(
    ("name", "written", "read"),
    [
        ("segment_size", "64MiB", 64 * MIB),
        ("segment_size", 2 * GIB, 2 * GIB),
        ("lease_ms", "1m30s", 90_000),
        ("lease_ms", "1500", 1_500),
        ("auto_create_topics", "no", False),
        ("auto_create_topics", True, True),
        ("delivery_records_keep", "64MiB", 64 * MIB),
        ("data_dir", "/var/lib/tern", Path("/var/lib/tern")),
        ("flush", "async", Flush.ASYNC),
    ],
)
def test_values_may_be_written_for_people(name: str, written: Any, read: Any) -> None:
    config = build({name: written})

    assert getattr(config if hasattr(config, name) else config.broker, name) == read


@pytest.mark.parametrize(
    ("name", "written", "said"),
    [
        ("ports", 70_000, "ports must be 1 to 65454, got 70000"),
        ("ports", 0, "ports must be 1 to"),
        ("ports", "http", "ports must be a whole number, got 'http'"),
        ("ports", 7700.5, "ports must be a whole number"),
        ("connections_max", True, "connections_max must be a whole number"),
        ("segment_size", "big", "segment_size: 'big' is not a size"),
        ("segment_size", "1KiB", "segment_size must be"),
        ("lease_ms", "soon", "lease_ms: 'soon' is not a duration"),
        ("auto_create_topics", "maybe", "auto_create_topics must be true or false"),
        ("flush", "never", "flush must be sync or async, got 'never'"),
        ("data_dir", "", "data_dir must be a path"),
        ("host", "", "host must not be empty"),
        ("host", 5, "host must be a text"),
        ("log_level", "loud", "log_level must be debug, info, warning or error"),
        ("broker_group", "%main", "broker_group: '%main' cannot be the name"),
        ("inbound_total_max", 16 * MIB - 1, "inbound_total_max must be"),
    ],
)
def test_a_value_out_of_its_limits_is_refused_by_name(name: str, written: Any, said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        build({name: written})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "fe80::1", "node.example", "*"])
def test_an_address_that_others_reach_needs_a_word(host: str) -> None:
    with pytest.raises(BadConfig, match=r"insecure = true \(--insecure, TERN_INSECURE=true\)"):
        build({"host": host})

    assert build({"host": host, "insecure": "true"}).exposed


def test_an_address_where_everybody_logs_in_over_tls_needs_none() -> None:
    files = {f"tls_{name}_file": "x.pem" for name in ("certificate", "key", "ca")}

    assert not build({"host": "0.0.0.0", "tls": True, "security": True, **files}).exposed
    with pytest.raises(BadConfig, match="security = true"):
        build({"host": "0.0.0.0", "security": True})
    with pytest.raises(BadConfig, match="security = true"):
        build({"host": "0.0.0.0", "tls": True, **files})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "localhost", "::1"])
def test_loopback_needs_none(host: str) -> None:
    assert not build({"host": host}).exposed
    assert not build({"host": host, "insecure": True}).exposed


def test_limits_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(BadConfig, match="inbound_total_max must not be less than inbound_max"):
        build({"inbound_max": 64 * MIB, "inbound_total_max": 32 * MIB})


def test_a_setting_that_two_parts_have_is_one_setting() -> None:
    config = build({"segment_size": "64MiB", "failover": False, "connections_max": 5})

    assert config.broker.segment_size == config.delay.segment_size == 64 * MIB
    assert config.broker.replication == config.delay.replication
    assert not config.broker.replication.failover
    listeners = (config.broker.listener, config.delay.listener, config.meta.listener)
    assert [listener.connections_max for listener in listeners] == [5, 5, 5]


def test_no_two_settings_have_one_name() -> None:
    for setting in all_settings(NodeConfig):
        assert setting in settings(), f"{setting.name} is defined twice"


def test_an_unknown_setting_names_the_nearest_known_one() -> None:
    with pytest.raises(
        BadConfig, match=r"node\.toml: .*'segmnt_size'; did you mean 'segment_size'"
    ):
        parse_file("segmnt_size = 1", source="node.toml")
    with pytest.raises(BadConfig, match="there is no setting 'lease'; did you mean 'lease_ms'"):
        build({"lease": 1})


def test_a_file_that_is_not_toml_is_refused_with_its_name() -> None:
    with pytest.raises(BadConfig, match=r"node\.toml is not TOML"):
        parse_file("ports: 7700", source="node.toml")


def test_a_misspelt_environment_name_is_pointed_out_and_others_are_left_alone() -> None:
    """An orchestrator sets names like TERN_PORT_7700_TCP by itself; they are no error."""
    environment = {"TERN_LEASE_MSS": "1", "TERN_URL": "tern://x:1", "TERN_PORT_7700_TCP": "x"}

    assert suspects(environment) == [
        "TERN_LEASE_MSS is not a setting; did you mean 'TERN_LEASE_MS'?"
    ]
    assert from_environment(environment) == {"url": "tern://x:1"}


def test_the_document_lists_every_setting_with_its_default_and_limits() -> None:
    """On failure, paste the rows of `expected` into the table of docs/configuration.md."""
    rows = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if "| `" in line]
    expected = [row(setting.name) for setting in settings()]

    assert [line for line in rows if line in expected] == expected, "\n".join(expected)


def row(name: str) -> str:
    setting = next(setting for setting in settings() if setting.name == name)
    limits = " to ".join(shown(name, limit) for limit in setting.limits or ())
    return f"| `{name}` | {shown(name, setting.default)} | {limits} | {setting.text} |"


def shown(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, int):
        return f"`{value}`" if str(value) else "empty"
    if name.endswith("_ms"):
        return f"{value} ms"
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if value >= factor and value % factor == 0:
            return f"{value // factor} {unit}"
    return str(value)
