"""Figures of servers over the wire: the table of `/metrics`, shared by all who look."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

import ternmq
from ternmq.core.errors import BadRequest
from ternmq.testing import node
from tests.integration.processes import Node, tern


@pytest.fixture
async def mq() -> AsyncIterator[Any]:
    async with node() as url, ternmq.connect(url, app="shop") as client:
        yield client


async def test_figures_of_a_broker_as_a_whole_and_of_its_topics(mq: Any) -> None:
    for number in range(3):
        await mq.send(f"t{number}", b"x")

    whole = (await mq.admin.figures())["main"]
    topics = (await mq.admin.figures(["tern_topic_kept_messages"]))["main"]

    values = {each.name: each.value for each in whole.values if not each.labels}
    assert values["tern_broker_topics"] == 3
    assert not [each for each in whole.values if "topic_kept" in each.name]
    assert {each.labels[0]: each.value for each in topics.values} == {"t0": 1, "t1": 1, "t2": 1}
    assert whole.histograms, "how long things took, in buckets"


async def test_figures_of_a_delay_server(mq: Any) -> None:
    await mq.send("t", b"x", delay=3_600)

    found = (await mq.admin.figures(kind="delay"))["main"]

    assert [each.name for each in found.values if each.name.startswith("tern_delay_")]


async def test_many_who_ask_share_what_was_made(mq: Any) -> None:
    first = (await mq.admin.figures())["main"]
    await mq.send("t", b"x")
    second = (await mq.admin.figures())["main"]

    assert second.values == first.values, "not made again so soon"
    assert second.age_s >= first.age_s


async def test_a_metric_that_is_not_there_is_named(mq: Any) -> None:
    with pytest.raises(BadRequest, match="there is no metric 'tern_nothing'"):
        await mq.admin.figures(["tern_nothing"])


def test_the_command_line_shows_figures(shared_node: Node) -> None:
    shown = tern("figures", "tern_broker_topics", "--json", url=shared_node.url).json()

    [each] = shown["main"]["values"]
    assert each["name"] == "tern_broker_topics"
    assert "tern_broker_groups" in tern("figures", url=shared_node.url).out
