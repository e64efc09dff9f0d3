"""What is copied can be run: quoted, with every argument, and known to the command line."""

import shlex

import typer

from ternmq.api.actions import ACTIONS
from ternmq.cli.main import app
from ternmq.console.copy_as import action_as

ARGUMENTS = {
    "topic": "order.paid",
    "group": "billing",
    "ids": "01A 01B",
    "start": "earliest",
    "key": "it's; rm -rf /",
    "at": "2030-01-01T00:00Z",
    "transaction": "01T",
    "broker_group": "main",
}


def test_every_action_is_a_command_that_there_is_with_flags_that_it_has() -> None:
    commands = typer.main.get_command(app)
    for action in ACTIONS.values():
        text = action_as(action, ARGUMENTS, "http://127.0.0.1:7780", "tern://h:1").cli
        words = shlex.split(text)[1:]
        group = commands.commands[words[0]]  # type: ignore[attr-defined]
        command = group.commands[words[1]]
        flags = {flag for parameter in command.params for flag in parameter.opts}

        assert {word for word in words if word.startswith("--")} <= flags, text


def test_values_are_quoted_for_the_shell() -> None:
    text = action_as(ACTIONS["resume-key"], ARGUMENTS, "http://h", "tern://h:1")

    assert "it's; rm -rf /" in shlex.split(text.cli)
    assert "rm -rf" in shlex.split(text.curl)[-1]
