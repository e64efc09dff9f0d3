"""One table has all commands of a delay server, and is what the page of the protocol says."""

import re
from pathlib import Path
from typing import Any

import pytest

from ternmq.core.errors import BadRequest, ProtocolError, Unavailable
from ternmq.delay.router import DelayRouter
from ternmq.wire.frame import Frame
from ternmq.wire.numbers import Command, Flag
from tests.tidy.source import ROOT

LINE = re.compile(r"^\| (?P<name>[A-Z_]+) \| (?P<number>\d+) \| (?P<servers>[a-z, ]+) \|", re.M)
OF_CONNECTIONS = {"HELLO", "PING"}


class Part:
    """Any part: it notes that it was called."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.called.append(name)


def router() -> tuple[DelayRouter, Part]:
    part: Any = Part()
    made = DelayRouter(
        acceptor=part, changes=part, finder=part, lender=part, status=part, members=part
    )
    return made, part


def frame(command: Command, *, flags: int = 0) -> Frame:
    return Frame(command=command, flags=flags, correlation=1, payload=bytearray())


def documented(page: Path) -> set[str]:
    """What the page says that a delay server answers."""
    return {
        line["name"]
        for line in LINE.finditer(page.read_text())
        if {"delay", "all"} & {*line["servers"].split(", ")}
    }


def test_every_command_of_the_page_is_in_the_table_and_no_other() -> None:
    made, _ = router()
    names = {Command(number).name for number in made.commands}

    assert names == documented(ROOT / "docs" / "wire-protocol.md") - OF_CONNECTIONS


def test_a_command_goes_to_its_part() -> None:
    made, part = router()
    peer: Any = None

    made.route(peer, frame(Command.PUBLISH))
    made.route(peer, frame(Command.BASE_OPEN))
    made.route(peer, frame(Command.BASE_READ))

    assert part.called == ["publish", "open", "read"]


def test_what_other_members_ask_goes_to_the_role() -> None:
    made, part = router()
    peer: Any = None

    made.route(peer, frame(Command.FOLLOW))
    made.route(peer, frame(Command.REPLICATED, flags=Flag.ONE_WAY))
    made.route(peer, frame(Command.HANDOVER))

    assert part.called == ["follow", "replicated", "hand_over"]


def test_what_is_not_for_a_delay_server_is_refused() -> None:
    made, _ = router()
    peer: Any = None

    with pytest.raises(BadRequest, match="does not answer PULL; ask a broker"):
        made.route(peer, frame(Command.PULL))
    with pytest.raises(ProtocolError, match="PUBLISH needs an answer"):
        made.route(peer, frame(Command.PUBLISH, flags=Flag.ONE_WAY))


def test_a_server_that_stops_hears_its_replicas_and_nobody_else() -> None:
    made, part = router()
    peer: Any = None
    made.stop()

    made.route(peer, frame(Command.REPLICATED, flags=Flag.ONE_WAY))
    with pytest.raises(Unavailable, match="stopping"):
        made.route(peer, frame(Command.PUBLISH))

    assert part.called == ["replicated"]
