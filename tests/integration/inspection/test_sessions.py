"""Who is connected, who sends what, and hanging up on somebody."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

import ternmq
from ternmq.core.errors import BadRequest
from ternmq.testing import node
from tests.integration.delivery.test_delivery import take
from tests.integration.processes import Node, tern
from tests.waiting import until


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with node() as running:
        yield running


@pytest.fixture
async def mq(url: str) -> AsyncIterator[Any]:
    async with ternmq.connect(url, app="shop") as client:
        yield client


async def test_connections_say_who_they_are_and_what_they_consume(url: str, mq: Any) -> None:
    await mq.send("t", b"x")
    async with (
        ternmq.connect(url, app="billing") as other,
        other.consumer("t", group="g", start="earliest"),
    ):
        found = {each.app: each for each in await mq.admin.sessions()}

        assert (found["billing"].role, found["shop"].role) == ("consumer", "client")
        [consuming] = found["billing"].consuming
        assert (consuming.topic, consuming.group) == ("t", "g")
        assert found["billing"].pid > 0
        assert found["billing"].version == ternmq.__version__
        assert [each.app for each in await mq.admin.sessions(app="billing")] == ["billing"]


async def test_connections_come_in_pages_each_once(url: str, mq: Any) -> None:
    others = [await ternmq.connect(url, app=f"app{number}") for number in range(5)]
    for other in others:
        await other.send("t", b"x")

    apps = [each.app for each in await mq.admin.sessions(limit=3)]

    assert len(apps) == 3
    assert {f"app{number}" for number in range(5)} <= {s.app for s in await mq.admin.sessions()}
    for other in others:
        await other.close()


async def test_who_sends_to_a_topic_is_counted(url: str, mq: Any) -> None:
    await mq.send_many("t", [b"12345"] * 30)
    async with ternmq.connect(url, app="billing") as other:
        await other.send("t", b"x")
        await other.send("elsewhere", b"x")

    found = {each.app: each.messages for each in await mq.admin.senders("t")}

    assert found == {"shop": 30, "billing": 1}
    assert {each.topic for each in await mq.admin.senders()} == {"t", "elsewhere"}


async def test_who_is_hung_up_on_is_told_and_comes_back(url: str, mq: Any) -> None:
    """What it holds waits for it, as after any lost connection."""
    await mq.send_many("t", [b"x"] * 2)
    async with (
        ternmq.connect(url, app="billing") as other,
        other.consumer("t", group="g", start="earliest") as consumer,
    ):
        [first, second] = await take(consumer, 2)
        [session] = [each.session for each in await mq.admin.sessions(app="billing")]
        before = {each.number for each in await mq.admin.sessions(app="billing")}

        assert await mq.admin.disconnect(session[:8], "too loud") == 1

        await until(lambda: back(mq, before), "the client came back")
        await first.ack()
        await second.ack()
        await until(lambda: acked(mq, 2), "both are acked, once")


async def back(mq: Any, before: set[int]) -> bool:
    now = await mq.admin.sessions(app="billing")
    return any(each.role == "consumer" and each.number not in before for each in now)


async def acked(mq: Any, count: int) -> bool:
    [line] = await mq.admin.ledger("t", "g")
    return bool(line.acked == count)


async def test_a_session_has_to_be_named_well(mq: Any) -> None:
    with pytest.raises(BadRequest, match="at least 4"):
        await mq.admin.disconnect("ab")

    assert await mq.admin.disconnect("0123456789abcdef") == 0


def test_the_command_line_lists_clients_and_senders(shared_node: Node) -> None:
    url = shared_node.url
    tern("send", "clients.test", "x", url=url)

    sessions = tern("clients", "list", "--json", url=url).json()
    senders = tern("clients", "senders", "clients.test", "--json", url=url).json()

    assert {"session", "app", "host", "pid", "version", "role"} <= set(sessions[0])
    assert [each["sender"]["messages"] for each in senders] == [1]
    assert "clients.test" in tern("clients", "senders", url=url).out
    assert tern("clients", "disconnect", "ffffffff", "--yes", url=url).out == (
        "0 connections closed\n"
    )
