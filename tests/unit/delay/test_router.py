"""One table has all commands of a delay server, and is what the page of the protocol says."""

from typing import Any

import pytest

from ternmq.core.errors import BadRequest, ProtocolError, Unavailable
from ternmq.delay.router import DelayRouter
from ternmq.wire.frame import Frame
from ternmq.wire.numbers import Command, Flag
from tests.wire_page import commands_of


class Part:
    """Any part: it notes that it was called."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.called.append(name)


def router() -> tuple[DelayRouter, Part]:
    part: Any = Part()
    made = DelayRouter(
        acceptor=part,
        changes=part,
        finder=part,
        lender=part,
        status=part,
        figure_looks=part,
        members=part,
    )
    return made, part


def frame(command: Command, *, flags: int = 0) -> Frame:
    return Frame(command=command, flags=flags, correlation=1, payload=bytearray())


def test_every_command_of_the_page_is_in_the_table_and_no_other() -> None:
    made, _ = router()

    assert {Command(number) for number in made.commands} == commands_of("delay")


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
