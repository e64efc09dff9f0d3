"""The example set in deploy/ is one that would start: files load, names and addresses agree."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ternmq.cli import main
from ternmq.discovery.url import parse_url
from ternmq.node.addresses import broker_route, delay_route, meta_address
from ternmq.node.config import NodeConfig, build, parse_file

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = sorted(DEPLOY.glob("*.toml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def load(path: Path) -> NodeConfig:
    return build(parse_file(path.read_text(encoding="utf-8"), source=path.name))


def role_of(path: Path) -> str:
    """As its first line says, which is what people copy."""
    found = re.match(r"#.*: tern (\w+) serve --config (\S+)", path.read_text(encoding="utf-8"))
    assert found, path
    assert found[2] == f"/etc/tern/{path.name}"
    return found[1]


def of_role(role: str) -> list[NodeConfig]:
    return [load(path) for path in FILES if role_of(path) == role]


def test_there_are_three_meta_servers_two_broker_groups_and_a_delay_server_of_two() -> None:
    assert len(of_role("meta")) == 3
    assert [config.broker_group for config in of_role("broker")] == ["east", "east", "west", "west"]
    assert [config.broker_group for config in of_role("delay")] == ["later", "later"]


def test_everybody_is_told_the_meta_servers_that_there_are_and_they_share_a_registry() -> None:
    metas = [meta_address(config) for config in of_role("meta")]

    assert len({config.meta.registry for config in of_role("meta")}) == 1
    for config in [*of_role("broker"), *of_role("delay")]:
        assert parse_url(config.url) == metas


def test_every_server_asks_who_comes_and_lets_nobody_in_without_a_certificate() -> None:
    for path in FILES:
        config = load(path)
        assert config.tls.proves_clients, path
        assert config.meta.listener.security, path
        assert not config.insecure, path


def test_every_server_has_an_address_and_a_folder_of_its_own() -> None:
    addresses = [meta_address(config) for config in of_role("meta")]
    addresses += [broker_route(config).address for config in of_role("broker")]
    addresses += [delay_route(config).address for config in of_role("delay")]
    folders = [load(path).data_dir for path in FILES]

    assert len(set(addresses)) == len(set(folders)) == len(FILES) == 9
    assert not [address for address in addresses if address.startswith(("0.0.0.0", "127."))]


def test_every_server_is_secured_with_files_of_its_own() -> None:
    configs = {path.stem: load(path) for path in FILES}
    for name, config in configs.items():
        assert config.tls.proves_clients and not config.exposed and not config.insecure
        assert config.tls.tls_key_file == f"/etc/tern/tls/{name}-key.pem"
        if config.url:
            assert config.joined_url(config.url)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_runs_a_command_that_exists(unit: Path) -> None:
    found = re.search(r"^ExecStart=/opt/tern/bin/tern (.*)$", unit.read_text(), re.MULTILINE)
    assert found
    words = found[1].replace("%i", "x").split()
    assert unit.name == f"tern-{words[0]}@.service"
    for option in (word for word in words if word.startswith("--")):
        assert option in CliRunner().invoke(main.app, [*words[:2], "--help"]).output


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    """Its program is not here, so another one stands in for it."""
    copy = tmp_path / unit.name.replace("@", "@x")
    copy.write_text(unit.read_text().replace("/opt/tern/bin/tern", shutil.which("true") or ""))

    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    complaints = [line for line in ran.stderr.splitlines() if unit.name.split("@")[0] in line]
    assert not complaints
