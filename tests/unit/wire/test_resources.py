"""What commands are about: every one has a line, and names are found where they stand."""

from collections.abc import Callable

import pytest

from ternmq.core.errors import BadRequest, ProtocolError
from ternmq.wire.messages.delays import DelayChange
from ternmq.wire.messages.limits import UserSet
from ternmq.wire.messages.pull import Join
from ternmq.wire.messages.read import GroupReplay, ReplayOpen
from ternmq.wire.messages.stats import StatusQuery, TopicFiguresFind
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, pack
from ternmq.wire.resources import RESOURCES, Finder, Resource, batch_names, without_resources


def test_a_command_without_a_line_is_named() -> None:
    lacking: dict[Command, Finder] = {
        command: find for command, find in RESOURCES.items() if command != Command.ACK
    }

    assert without_resources(RESOURCES) == []
    assert without_resources(lacking) == ["ACK"]


@pytest.mark.parametrize(
    ("command", "payload", "found"),
    [
        (
            Command.JOIN,
            pack(Join(group="g", topics=["a", "b"])),
            [("group", "g"), ("topic", "a"), ("topic", "b")],
        ),
        (
            Command.GROUP_REPLAY,
            pack(GroupReplay(topic="a", into="g", first=0, end=1, replay="r")),
            [("topic", "a"), ("group", "g")],
        ),
        (
            Command.REPLAY_OPEN,
            pack(ReplayOpen(topic="a", replay="r", source="s")),
            [("topic", "a")],
        ),
        (Command.DELAY_CHANGE, pack(DelayChange(action="cancel", id=b"i")), [("topic", "")]),
        (Command.READ_DELIVERIES, b"", [("topic", "")]),
        (Command.USER_SET, pack(UserSet(name="a")), [("password", "a")]),
        (Command.USER_SET, pack(UserSet(name="a", apps=[])), [("user", "a")]),
        (Command.USER_SET, pack(UserSet(name="a", create=True)), [("user", "a")]),
        (Command.USER_SET, pack(UserSet(name="a", connections_max=0)), [("user", "a")]),
    ],
)
def test_names_are_found_where_they_stand(
    command: Command, payload: bytes, found: list[Resource]
) -> None:
    assert RESOURCES[command](payload) == found


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x91" * 4_000, b"\x90"])
def test_a_request_that_cannot_be_read_breaks_the_rules(payload: bytes) -> None:
    for command in (Command.JOIN, Command.READ, Command.TOPIC_DELETE, Command.PUBLISH):
        with pytest.raises(ProtocolError):
            RESOURCES[command](payload)


def test_names_that_are_no_text_break_the_rules() -> None:
    batch = bytearray(260)
    batch[200], batch[201] = 4, 4
    batch[208:216] = b"\xff" * 8
    with pytest.raises(ProtocolError, match="UTF-8"):
        batch_names(batch)


@pytest.mark.parametrize(
    ("command", "ask"),
    [
        (Command.STATUS, lambda names: StatusQuery(topics=names)),
        (Command.TOPIC_FIGURES, lambda names: TopicFiguresFind(topics=names)),
        (Command.JOIN, lambda names: Join(group="g", topics=names)),
    ],
)
def test_a_request_is_about_so_many_topics_each_once(
    command: Command, ask: Callable[[list[str]], Record]
) -> None:
    find = RESOURCES[command]
    found = find(pack(ask(["a", "b", "a"])))
    assert [name for kind, name in found if kind == "topic"] == ["a", "b"]
    with pytest.raises(BadRequest, match="at most 1000 topics, this one names 1001"):
        find(pack(ask(["a"] * 1_001)))
