"""What a follower answers, and whom it sends to the master."""

from typing import Any

import pytest

from ternmq.core.errors import NotMaster, TernError
from ternmq.replication.member.role_switch import FollowerRouter
from ternmq.rpc.peer import Peer
from ternmq.wire.frame import Frame
from ternmq.wire.numbers import Command


class Client:
    """A connection that notes why it was closed."""

    def __init__(self) -> None:
        self.closed_by: TernError | None = None

    def close(self, reason: TernError | None = None) -> None:
        self.closed_by = reason


def frame(command: Command) -> Frame:
    return Frame(command=command, flags=0, correlation=1, payload=bytearray())


def a_router() -> tuple[FollowerRouter, list[int]]:
    answered: list[int] = []

    def answer(peer: Peer, frame: Frame) -> None:
        answered.append(frame.command)

    return FollowerRouter({Command.STATUS: answer}, "this server is a replica"), answered


def test_a_command_of_the_table_is_answered() -> None:
    router, answered = a_router()
    client: Any = Client()

    router.route(client, frame(Command.STATUS))

    assert answered == [Command.STATUS]
    assert client.closed_by is None


def test_a_client_that_asks_for_more_is_sent_away_to_look_for_the_master() -> None:
    router, answered = a_router()
    client: Any = Client()

    router.route(client, frame(Command.PUBLISH))

    assert not answered
    assert isinstance(client.closed_by, NotMaster)
    assert "is a replica" in client.closed_by.message


def test_a_member_that_asks_the_wrong_one_is_told_and_may_stay() -> None:
    router, _ = a_router()
    client: Any = Client()

    with pytest.raises(NotMaster, match="is a replica"):
        router.route(client, frame(Command.FOLLOW))
    assert client.closed_by is None
