"""What holds for every command there is (D14): `--json`, help without numbers of ours, a page."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from ternmq.cli.main import app, run
from ternmq.cli.terminal.extras import BROUGHT_BY, what_to_install
from ternmq.cli.terminal.hints import HINTS

SERVERS = {
    "run",
    "up",
    "cluster",
    "console",
    "meta serve",
    "broker serve",
    "delay serve",
    "gateway serve",
}
"""They run until they are stopped, and say `ready URL` on stdout."""
ALWAYS_JSON = {"definitions export"}
"""Their result is a JSON document, made to be kept and read by `definitions import`; a text for
people would be another document, and a flag that changes nothing would be a lie."""
REQUIREMENT = re.compile(r"\b[QRJDP]\d{1,2}\b")
PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    command = command or typer.main.get_command(app)
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(path), command
        return
    for name, one in below.items():
        yield from commands(one, (*path, name))


COMMANDS = dict(commands())


def test_there_are_many() -> None:
    assert len(COMMANDS) > 70


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - SERVERS - ALWAYS_JSON))
def test_every_command_has_json(name: str) -> None:
    options = [option for one in COMMANDS[name].params for option in one.opts]
    assert "--json" in options


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_is_for_people(name: str) -> None:
    """It says something about everything, without numbers of our requirements."""
    command = COMMANDS[name]
    assert command.help
    texts = [command.help, *(getattr(one, "help", None) or "" for one in command.params)]
    assert not [text for text in texts if REQUIREMENT.search(text)]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_on_the_page(name: str) -> None:
    assert name in PAGE or f"`{name.split()[-1]}" in PAGE, f"docs/cli.md lacks tern {name}"


def test_hints_are_about_words_that_are_no_commands_at_the_top() -> None:
    top = {name.split()[0] for name in COMMANDS}
    assert not top & set(HINTS)
    named = {match for hint in HINTS.values() for match in re.findall(r"tern ([a-z]+)", hint)}
    assert named <= top


def test_a_missing_extra_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("ternmq.pipeline.archive.search", "pyarrow"):
        monkeypatch.setitem(sys.modules, module, None)
    line = ["pipeline", "find", "--archive", "x", "--id", "y"]
    for flags, said in (
        ([], "error: this needs pyarrow, which is not installed: pip install 'ternmq[spark]'\n"),
        (["--json"], None),
    ):
        monkeypatch.delitem(sys.modules, "ternmq.pipeline.archive.search", raising=False)
        monkeypatch.setattr(sys, "argv", ["tern", *line, *flags])
        with pytest.raises(SystemExit) as left:
            run()
        found = capsys.readouterr().err
        assert left.value.code == 1
        if said is None:
            assert json.loads(found)["error"]["code"] == "not_installed"
        else:
            assert found == said


def test_a_module_that_no_extra_brings_is_a_bug() -> None:
    assert what_to_install("ternmq.nonsense") is None
    assert what_to_install(None) is None
    project = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    for extra in set(BROUGHT_BY.values()):
        assert f"\n{extra} = [" in project
