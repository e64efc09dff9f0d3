"""`tern config show`: every setting, its value, and who said so (D14)."""

from pathlib import Path

import pytest

from ternmq.cli.processes.settings import effective
from ternmq.core.errors import BadConfig
from ternmq.node.config import settings


def test_each_value_names_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "node.toml"
    file.write_text('lease_ms = "5s"\nflush = "async"\n')
    monkeypatch.setenv("TERN_FLUSH", "sync")

    rows = {row["name"]: row for row in effective(file)}

    assert set(rows) == {setting.name for setting in settings()}
    assert (rows["lease_ms"]["value"], rows["lease_ms"]["from"]) == (5_000, str(file))
    assert (rows["flush"]["value"], rows["flush"]["from"]) == ("sync", "TERN_FLUSH")
    assert rows["ports"]["from"] == "default"


def test_passwords_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERN_REGISTRY", "postgresql://tern:hunter2@db/tern")

    [row] = [row for row in effective(None) if row["name"] == "registry"]

    assert row["value"] == "postgresql://tern:***@db/tern"


def test_what_a_start_would_refuse_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("leese_ms = 5\n")

    with pytest.raises(BadConfig, match="did you mean 'lease_ms'"):
        effective(file)
