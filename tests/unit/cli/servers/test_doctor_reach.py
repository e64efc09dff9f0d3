"""`tern doctor --from-client`: what is said about an address, and what to change (D7)."""

import re
import socket

import pytest

from ternmq.cli.servers.doctor_reach import (
    ReachTarget,
    Tried,
    judge,
    judge_clusters,
    try_address,
)
from ternmq.cli.servers.doctor_report import Level
from ternmq.wire.messages.hello import Hello, Welcome

HELLO = Hello(protocol=1, app="test", version="0", session=bytes(16))
EAST = ReachTarget(
    name="broker group east", address="10.0.0.7:7701", role="broker", broker_group="east"
)
METAS = ["10.0.0.1:7700"]


def welcome(role: str = "broker", group: str = "east") -> Welcome:
    return Welcome(protocol=1, version="0", role=role, node="n", broker_group=group)  # type: ignore[arg-type]


def test_a_server_that_answers_as_who_it_should_be_is_reached() -> None:
    found = judge(EAST, Tried(welcome=welcome(), took_ms=3.4), METAS)

    assert (found.level, found.found) == (Level.OK, "reached from here, answered in 3 ms")


@pytest.mark.parametrize(
    ("trouble", "advice"),
    [
        ("name", "set advertised_host of broker group east to a name or number"),
        (
            "refused",
            r"bound to 127.0.0.1 only \(host\).*mapped to another one \(advertised_ports\)",
        ),
        ("silent", "let port 7701/tcp of 10.0.0.7 through the firewall"),
        ("stranger", "something else than TernMQ is at 10.0.0.7:7701"),
        ("other", "an address that is routed from here"),
    ],
)
def test_each_way_to_fail_says_what_to_change(trouble: str, advice: str) -> None:
    found = judge(EAST, Tried(trouble=trouble, reason="why"), METAS)

    assert (found.level, found.found) == (Level.FAIL, "why")
    assert re.search(advice, found.advice)


def test_a_loopback_address_is_wrong_although_something_answers_there() -> None:
    """Whatever runs on the client's machine is not the server."""
    here = ReachTarget(name="delay server d", address="127.0.0.1:7702", role="delay")

    found = judge(here, Tried(welcome=welcome("delay", "d")), METAS)
    assert found.level is Level.FAIL
    assert "set advertised_host of delay server d" in found.advice
    assert judge(here, Tried(welcome=welcome("delay", "d")), ["127.0.0.1:7700"]).level is Level.OK


@pytest.mark.parametrize(("role", "group"), [("broker", "west"), ("meta", "")])
def test_somebody_else_at_the_address_is_not_taken_for_the_server(role: str, group: str) -> None:
    found = judge(EAST, Tried(welcome=welcome(role, group)), METAS)

    assert found.level is Level.FAIL
    assert "answers there" in found.found
    assert "advertised_ports of its own" in found.advice


def test_meta_servers_of_different_clusters_are_told_apart() -> None:
    assert judge_clusters({"a:1": "x", "b:1": "x"}) == []
    [found] = judge_clusters({"a:1": "x", "b:1": "y"})
    assert found.level is Level.FAIL


async def test_trying_tells_a_wrong_name_from_a_closed_port_and_a_stranger() -> None:
    with socket.socket() as closed, socket.create_server(("127.0.0.1", 0)):
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        assert (await try_address(f"127.0.0.1:{port}", HELLO)).trouble == "refused"
    assert (await try_address("no-such-host.invalid:7701", HELLO)).trouble == "name"
