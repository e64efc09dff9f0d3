"""Delayed messages, looked at and changed many at a time."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

import ternmq
from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.core.errors import BadRequest
from ternmq.core.ids import ProducerId
from ternmq.rpc.connection import Connection, request
from ternmq.testing import node
from ternmq.wire.messages.delays import DelayChange, DelayChanged, DelayContents, DelayShow
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello
from ternmq.wire.numbers import Command
from tests.integration.processes import Node, tern


@pytest.fixture
async def mq() -> AsyncIterator[Any]:
    async with node() as url, ternmq.connect(url, app="shop") as client:
        yield client


async def test_a_delayed_message_is_shown_with_what_is_in_it(mq: Any) -> None:
    body = b"order " * 2_000
    receipt = await mq.send("t", body, delay=3_600, key="o-1", tag="vip", properties={"n": 5})
    await mq.send("t", b"another", delay=3_600)

    for name in (receipt, receipt.id):
        [found] = await mq.admin.delays.show(name)
        assert (found.body, found.tag, found.properties["n"]) == (body, "vip", 5)
        assert (found.row.key, found.row.size, found.app) == ("o-1", len(body), "shop")

    await mq.cancel(receipt)
    assert await mq.admin.delays.show(receipt) == []


async def test_a_number_that_no_wire_takes_is_shown_as_its_text(mq: Any) -> None:
    """A property may have 4,000 digits; the question after such a message was never answered."""
    receipt = await mq.send("t", b"x", delay=3_600, properties={"n": 10**30, "small": -(2**63)})

    [found] = await mq.admin.delays.show(receipt)

    assert found.properties == {"n": "1" + "0" * 30, "small": -(2**63)}


async def test_one_of_thousands_with_the_same_id_is_found_in_time(mq: Any) -> None:
    """A sender may give ids, so also one a thousand times; each of them was looked up alone."""
    await mq.admin.create_topic("t")
    due_ms = int(time.time() * 1000) + 3_600_000
    rows = [Outgoing(body=b"x", explicit_id=b"twin", due_at_ms=due_ms) for _ in range(1_000)]
    [delay] = [route for route in await mq.admin.routes() if route.kind == "delay"]
    hello = Hello(protocol=PROTOCOL_VERSION, app="shop", version="0", session=bytes(16))
    connection = await Connection.open(delay.address, hello, timeout=10)
    for number in range(20):
        origin = Origin(topic="t", app="shop", producer=ProducerId(1, 1))
        batch = encode_messages(rows, origin=origin, first_sequence=number * 1_000)
        await connection.call(Command.PUBLISH, bytes(batch))

    async with asyncio.timeout(10):
        shown = DelayShow(id=b"twin", topic="t")
        found = await request(connection, Command.DELAY_SHOW, shown, DelayContents, timeout=10)
        assert len(found.messages) == 4
        for _ in range(3):
            change = DelayChange(action="cancel", id=b"twin", topic="t")
            done = await request(connection, Command.DELAY_CHANGE, change, DelayChanged, timeout=10)
            assert done.result == "cancelled"
    connection.abort()


async def test_pages_of_what_waits_follow_each_other(mq: Any) -> None:
    for number in range(25):
        await mq.send("t", b"x", delay=3_600 + 900 * number, key=f"k{number:02}")

    keys: list[str] = []
    after, pages = "", 0
    while pages == 0 or after:
        page = await mq.admin.delays.page(topic="t", limit=10, after=after)
        keys += [row.key for row in page.rows]
        after, pages = page.following, pages + 1

    assert keys == [f"k{number:02}" for number in range(25)]
    assert pages == 3
    with pytest.raises(BadRequest, match="of a page"):
        await mq.admin.delays.page(after="main:zz")


async def test_many_are_cancelled_and_every_result_is_counted(mq: Any) -> None:
    receipts = [await mq.send("t", b"x", delay=3_600) for _ in range(60)]
    seen: list[int] = []

    done = await mq.admin.delays.change_many(
        "cancel",
        [*receipts, "0" * 26],
        on_progress=lambda counts: seen.append(sum(counts.values())),
    )

    assert done.failed == []
    assert done.counts == {"cancelled": 60, "unknown": 1}
    assert seen == [50, 61]
    assert await mq.admin.delays.rows(topic="t") == []


async def test_figures_of_many_topics_are_one_call(mq: Any) -> None:
    for name in ("a", "b", "c"):
        await mq.send(name, b"x")

    found = await mq.admin.topic_figures(["a", "b", "c"])

    assert [(each.topic, each.sent.messages) for each in found] == [("a", 1), ("b", 1), ("c", 1)]


def test_the_command_line_shows_a_delayed_message(shared_node: Node) -> None:
    url = shared_node.url
    sent = tern("send", "delay.shown", "hello", "--delay", "1h", "--json", url=url).json()

    [shown] = tern("delay", "show", sent["id"], url=url).json()

    assert shown["body"] == "hello"
    assert tern("delay", "show", "0" * 26, url=url, code=1).out == ""
