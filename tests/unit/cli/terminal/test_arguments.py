"""`--url` and `--json` anywhere in a line (D14)."""

from types import SimpleNamespace

import pytest

from ternmq.cli.terminal.arguments import arranged, wants_json

ROOT = SimpleNamespace(
    commands={
        "send": SimpleNamespace(),
        "topic": SimpleNamespace(commands={"list": SimpleNamespace(), "show": SimpleNamespace()}),
    }
)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("topic list", "topic list"),
        ("topic list --url U", "topic list --url U"),
        ("--url U topic list", "topic list --url U"),
        ("topic --url U list", "topic list --url U"),
        ("--url=U topic --json show t", "topic show --url=U --json t"),
        ("--json send t body --key --url", "send --json t body --key --url"),
        ("--version", "--version"),
        ("--url", "--url"),
        ("nonsense --url U", "nonsense --url U"),
        ("--url U nonsense", "nonsense --url U"),
        ("topic nonsense", "topic nonsense"),
        ("send t -- --url U", "send t -- --url U"),
        ("", ""),
    ],
)
def test_options_of_every_command_are_moved_behind_its_name(typed: str, meant: str) -> None:
    assert arranged(ROOT, typed.split()) == meant.split()


def test_what_stands_behind_two_dashes_is_no_option() -> None:
    assert wants_json(["topic", "list", "--json"])
    assert not wants_json(["send", "t", "--", "--json"])
