"""`tern secure`: what it makes, prints and refuses."""

import json
from pathlib import Path

from typer.testing import CliRunner

from ternmq.cli.main import app
from ternmq.core.errors import AlreadyExists, BadConfig, BadName, BadRequest
from ternmq.node.config import build, parse_file
from ternmq.security.tls.certificate_files import CertificateFiles
from ternmq.security.tls.server_tls import ServerTls


def run(*words: str) -> str:
    ran = CliRunner().invoke(app, ["secure", *words])
    assert ran.exit_code == 0, ran.output
    return ran.output


def failure(*words: str) -> BaseException | None:
    return CliRunner().invoke(app, ["secure", *words]).exception


def test_what_init_prints_is_a_config_file(tmp_path: Path) -> None:
    printed = run("init", str(tmp_path / "ca"), "--cluster", "shop", "--host", "mq.example")
    config = build(parse_file(printed, source="stdout"))
    tls = ServerTls(config.tls.files)

    assert config.meta.listener.security
    assert not config.exposed
    assert [name.uri for name in tls.names] == [
        "tern://shop/meta",
        "tern://shop/realtime/main",
        "tern://shop/delay/main",
    ]
    assert {"localhost", "mq.example"} <= set(tls.certificate.dns_names)
    assert "127.0.0.1" in tls.certificate.ip_addresses
    assert isinstance(failure("init", str(tmp_path / "ca")), AlreadyExists)


def test_a_certificate_says_for_whom_it_is(tmp_path: Path) -> None:
    folder = str(tmp_path / "ca")
    run("init", folder, "--cluster", "shop")
    words = ("cert", folder, "east-1", "--for", "broker", "--group", "east", "--json")
    made = json.loads(run(*words))
    files = CertificateFiles(
        certificate=Path(made["certificate"]), key=Path(made["key"]), ca=Path(made["ca"])
    )

    assert [name.uri for name in ServerTls(files).names] == ["tern://shop/realtime/east"]
    assert isinstance(failure(*words), AlreadyExists)
    assert json.loads(run(*words, "--replace")) == made
    assert "terns://HOST:7700?ca=" in run("cert", folder, "app")


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    folder = str(tmp_path / "ca")
    assert isinstance(failure("cert", folder, "x"), BadConfig)
    run("init", folder)
    assert isinstance(failure("cert", folder, "x", "--host", "a"), BadRequest)
    assert isinstance(failure("cert", folder, "../x"), BadName)
    assert isinstance(failure("init", str(tmp_path / "b"), "--cluster", "a/b"), BadName)
    assert isinstance(failure("cert", folder, "x", "--for", "broker", "--group", "a/b"), BadName)
