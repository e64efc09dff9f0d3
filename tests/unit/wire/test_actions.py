"""The table of actions: every command has a line, and who may send it is what the routers do."""

from ternmq.wire.actions import ACTIONS, OF_NODES, Action, without_action
from ternmq.wire.numbers import Command
from tests.wire_page import command_rows


def test_a_command_without_a_line_is_named() -> None:
    lacking: dict[Command, Action] = {
        command: action for command, action in ACTIONS.items() if command != Command.ACK
    }

    assert without_action(ACTIONS) == []
    assert without_action(lacking) == ["ACK"]


def test_the_page_of_the_protocol_says_the_same() -> None:
    assert {row.command: row.action for row in command_rows()} == ACTIONS


def test_what_only_servers_ask_cannot_be_asked_by_others() -> None:
    assert {Command.REGISTER, Command.FOLLOW, Command.RESERVE, Command.REPLICATED} <= OF_NODES
    assert not {Command.PUBLISH, Command.PULL, Command.STANDINGS} & OF_NODES


def test_what_people_decide_with_the_command_line_is_theirs() -> None:
    """`tern broker promote`, `handover`, `drain`, `forget`, `weight`, `tern delay forget`."""
    people = (
        Command.MEMBER_LEAD,
        Command.HANDOVER,
        Command.BROKER_GROUP_DRAIN,
        Command.MEMBER_FORGET,
        Command.PLACE,
        Command.WITHDRAW,
    )

    assert {ACTIONS[command] for command in people} == {Action.CLUSTER}
