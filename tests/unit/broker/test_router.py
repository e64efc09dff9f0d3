"""The table of commands: complete, and the only place where a broker's commands are named."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ternmq.broker.router import BrokerHandlers, BrokerRouter
from ternmq.core.errors import BadRequest, ProtocolError, Unavailable
from ternmq.rpc.stuck_requests import StuckRequests
from ternmq.wire.frame import Frame
from ternmq.wire.messages.hello import Empty
from ternmq.wire.messages.pull import Leave
from ternmq.wire.numbers import Command, Flag
from ternmq.wire.record import pack
from tests.wire_page import commands_of


class Part:
    """A part that notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Callable[..., Empty]:
        def ask(*values: Any) -> Empty:
            self.asked.append((name, values))
            return Empty()

        return ask


def a_router() -> tuple[BrokerRouter, SimpleNamespace]:
    names = BrokerHandlers.__dataclass_fields__
    parts = SimpleNamespace(**{name: Part() for name in names})
    return BrokerRouter(cast(Any, parts), StuckRequests(lambda: None)), parts


def a_frame(command: Command, payload: bytes = b"", flags: int = 0) -> Frame:
    return Frame(int(command), flags, 1, bytearray(payload))


def test_every_command_that_the_protocol_asks_of_a_broker_is_in_the_table() -> None:
    router, _ = a_router()

    assert {Command(number) for number in router.commands} == commands_of("broker")


def test_what_other_members_ask_goes_to_the_role() -> None:
    router, parts = a_router()
    peer = cast(Any, Part())

    router.route(peer, a_frame(Command.FOLLOW))
    router.route(peer, a_frame(Command.REPLICATED, flags=Flag.ONE_WAY))
    router.route(peer, a_frame(Command.HANDOVER))

    assert [name for name, _ in parts.members.asked] == ["follow", "replicated", "hand_over"]


def test_a_command_goes_to_its_part() -> None:
    router, parts = a_router()
    peer = cast(Any, Part())

    router.route(peer, a_frame(Command.PUBLISH, b"batch"))
    router.route(peer, a_frame(Command.LEAVE, pack(Leave(subscription=7))))

    assert [name for name, _ in parts.publisher.asked] == ["publish"]
    [(name, (_, request))] = parts.consumer_commands.asked
    assert (name, request) == ("leave", Leave(subscription=7))
    assert [name for name, _ in peer.asked] == ["answer"]


def test_a_one_way_command_is_not_answered_and_most_commands_are_not_one_way() -> None:
    router, _ = a_router()
    peer = cast(Any, Part())

    router.route(peer, a_frame(Command.LEAVE, pack(Leave(subscription=7)), Flag.ONE_WAY))
    assert peer.asked == []
    with pytest.raises(ProtocolError, match="PUBLISH needs an answer"):
        router.route(peer, a_frame(Command.PUBLISH, flags=Flag.ONE_WAY))


def test_a_broker_that_stops_lets_consumers_finish_and_begins_nothing() -> None:
    router, parts = a_router()
    peer = cast(Any, Part())
    router.stop()

    router.route(peer, a_frame(Command.ACK))
    with pytest.raises(Unavailable, match="stopping"):
        router.route(peer, a_frame(Command.PULL))
    assert [name for name, _ in parts.consumer_commands.asked] == ["ack"]


def test_what_is_not_a_brokers_is_refused() -> None:
    router, _ = a_router()

    with pytest.raises(BadRequest, match="ask a meta server"):
        router.route(cast(Any, Part()), a_frame(Command.ROUTES))
