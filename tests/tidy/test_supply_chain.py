"""What is built on: bounds above known holes, downloads that are compared, holes that fail."""

import json
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from benchmarks.peers.checksums import WrongChecksum, check, known
from benchmarks.peers.install import NATS_WHEEL
from benchmarks.peers.java import KAFKA, ROCKETMQ, SPARK_KAFKA
from scripts.audit import verdict, write_parts
from tests.tidy.source import ROOT

HOLES = {
    "asyncmy": "0.2.11",
    "cryptography": "46.0.4",
    "django": "5.2.7",
    "duckdb": "1.0.0",
    "fastapi": "0.115.0",
    "joserfc": "1.6.2",
    "nicegui": "3.3.0",
    "pymysql": "1.1.0",
    "setuptools": "78.1.0",
    "starlette": "0.49.0",
}
"""The last version of each that is known to have one."""


def test_no_lower_bound_allows_a_version_with_a_known_hole() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    written = [*settings["build-system"]["requires"], *project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        written += extra
    allowed = [
        text
        for text in written
        for wanted in [Requirement(text)]
        if wanted.name in HOLES and wanted.specifier.contains(HOLES[wanted.name])
    ]

    assert not allowed


def test_every_jar_of_the_peers_has_a_checksum() -> None:
    names = known()
    for server in (KAFKA, ROCKETMQ, SPARK_KAFKA):
        for artifact in server.artifacts:
            _, name, version = artifact.split(":")
            assert f"{server.folder.name}/{name}-{version}.jar" in names


def test_the_wheel_of_nats_has_a_checksum() -> None:
    package, _, version = NATS_WHEEL.replace("-", "_").partition("==")

    assert [name for name in known() if name.startswith(f"{package}-{version}-")]


def test_a_download_that_is_another_one_is_refused(tmp_path: Path) -> None:
    source, jar = tmp_path / "checksums.txt", tmp_path / "a.jar"
    jar.write_bytes(b"good")
    with pytest.raises(WrongChecksum, match="no checksum is known"):
        check([jar], tmp_path, source=source)
    check([jar], tmp_path, source=source, record=True)
    check([jar], tmp_path, source=source)
    jar.write_bytes(b"evil")
    with pytest.raises(WrongChecksum, match="is not what it was"):
        check([jar], tmp_path, source=source)


def audited(**package: object) -> str:
    found = {"dependencies": [{"name": "x", "version": "1", "vulns": []} | package], "fixes": []}
    return f"WARNING: something\n{json.dumps(found)}\n"


def test_only_a_known_hole_fails_the_audit_and_what_was_not_looked_at_is_not_called_good(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hole = {"id": "PYSEC-1", "fix_versions": ["2"], "aliases": ["CVE-1"]}
    assert verdict(audited()) == 0
    assert capsys.readouterr().out == "1 packages looked at, 0 known holes\n"
    assert verdict(audited(vulns=[hole])) == 1
    assert "x 1: PYSEC-1 (CVE-1), fixed in 2" in capsys.readouterr().out
    for unasked in (audited(skip_reason="not found"), "ConnectionError: no route to host"):
        assert verdict(unasked) == 0
        shown = capsys.readouterr().out
        assert "not looked at" in shown or "was not asked" in shown
        assert "0 known holes" not in shown


def test_the_list_of_parts_is_written_without_any_tool(tmp_path: Path) -> None:
    write_parts(tmp_path / "sbom.json")

    written = json.loads((tmp_path / "sbom.json").read_text(encoding="utf-8"))
    names = {part["name"]: part for part in written["components"]}
    assert written["bomFormat"] == "CycloneDX"
    assert names["msgspec"]["purl"].startswith("pkg:pypi/msgspec@")
