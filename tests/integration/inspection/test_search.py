"""Messages by what is in them: bounded, with progress, and honest about how far it got."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

import ternmq
from ternmq.core.errors import BadFilter, BadRequest, TopicNotFound
from ternmq.testing import node
from tests.integration.processes import Node, tern


@pytest.fixture
async def mq() -> AsyncIterator[Any]:
    async with node() as url, ternmq.connect(url, app="shop") as client:
        yield client


async def fill(mq: Any, count: int) -> None:
    for number in range(count):
        await mq.send(
            "t",
            f"Order {number} from Berlin".encode() if number % 5 == 0 else b"nothing",
            key=f"k{number}",
            tag="even" if number % 2 == 0 else "odd",
            properties={"amount": number},
        )


def sequences(result: Any) -> list[int]:
    return [message.sequence for message in result.messages]


async def test_by_text_by_condition_by_tag_and_all_together(mq: Any) -> None:
    await fill(mq, 20)

    assert sequences(await mq.search("t", text="BERLIN")) == [0, 5, 10, 15]
    assert sequences(await mq.search("t", where="amount > 16")) == [17, 18, 19]
    assert sequences(await mq.search("t", text="berlin", where="amount > 4", tag="even")) == [10]
    assert sequences(await mq.search("t", text="k13")) == [13], "keys are searched, too"
    assert sequences(await mq.search("t", text="amount=19")) == [19]


async def test_a_search_says_how_far_it_got_and_goes_on_from_there(mq: Any) -> None:
    await fill(mq, 20)
    seen: list[int] = []

    first = await mq.search(
        "t", text="berlin", limit=3, on_progress=lambda so_far: seen.append(so_far.looked_at)
    )
    rest = await mq.search("t", text="berlin", start=first.following)

    assert (sequences(first), first.complete) == ([0, 5, 10], False)
    assert (sequences(rest), rest.complete, rest.following) == ([15], True, {})
    assert seen == sorted(seen)


async def test_a_search_looks_at_no_more_than_it_may(mq: Any) -> None:
    await fill(mq, 20)

    result = await mq.search("t", text="berlin", rows_max=6)

    assert result.looked_at < 20
    assert not result.complete
    assert result.following["main"] == result.looked_at


async def test_mistakes_are_told_before_anything_is_read(mq: Any) -> None:
    with pytest.raises(BadRequest, match="needs where=, text= or tag="):
        await mq.search("t")
    with pytest.raises(BadFilter):
        await mq.search("t", where="amount >")
    with pytest.raises(BadRequest, match="limit is 0"):
        await mq.search("t", text="x", limit=0)
    with pytest.raises(TopicNotFound):
        await mq.search("nothing", text="x")


def test_the_command_line_searches(shared_node: Node) -> None:
    url = shared_node.url
    tern("send", "search.test", "hello world", "--property", "amount:=12", url=url)
    tern("send", "search.test", "another", url=url)

    found = tern("search", "search.test", "WORLD", "--where", "amount > 10", "--json", url=url)

    assert [message["body"] for message in found.json()["messages"]] == ["hello world"]
    assert found.json()["complete"]
    shown = tern("search", "search.test", "world", url=url)
    assert "hello world" in shown.out
    assert "1 found, 2 looked at" in shown.err
    assert tern("search", "search.test", "nowhere", url=url, code=1).out == ""
