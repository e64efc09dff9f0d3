"""Q8, Q9: groups and topics page by page, sorted and cut at the broker; exact and complete."""

import asyncio
from typing import Any

import pytest

import ternmq
import ternmq.testing
from ternmq.api.views import sampled_figures
from ternmq.api.views.sampled_figures import SampledGroups, SampledTopics
from ternmq.api.views.snapshot import group_views
from ternmq.client.admin import groups as admin_groups
from ternmq.client.admin import topics as admin_topics
from ternmq.core.errors import BadRequest, TopicNotFound
from ternmq.wire.messages.groups import GroupFind, Groups, Ledger
from ternmq.wire.numbers import Command

GROUPS = 30


async def fill(mq: ternmq.Client) -> None:
    async def make(number: int) -> None:
        topic = f"topic.{number:03}"
        await mq.send_many(topic, [b"x"] * (number + 1))
        await mq.admin.create_group(topic, f"g.{number:03}")

    await asyncio.gather(*map(make, range(GROUPS)))


async def test_pages_are_sorted_cut_and_complete() -> None:
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        await fill(mq)
        names: list[str] = []
        after, pages = "", 0
        while True:
            [page] = (await mq.admin.figures_page(after=after, limit=7)).values()
            names += [each.name for each in page.groups]
            assert [each.group for each in page.figures] == [each.name for each in page.groups]
            after, pages = page.following, pages + 1
            if not after:
                break
        assert names == [f"g.{number:03}" for number in range(GROUPS)]
        assert pages == 5
        assert (page.sums.groups, page.sums.topics) == (GROUPS, GROUPS)
        assert page.sums.ready == sum(range(1, GROUPS + 1))
        [worst] = (await mq.admin.figures_page(sort="ready", limit=3)).values()
        assert [each.ledger.ready for each in worst.groups] == [30, 29, 28]
        [second] = (
            await mq.admin.figures_page(sort="ready", limit=3, after=worst.following)
        ).values()
        assert [each.ledger.ready for each in second.groups] == [27, 26, 25]
        [some] = (await mq.admin.figures_page(prefix="topic.01", limit=100)).values()
        assert [each.topic for each in some.groups] == [f"topic.{at:03}" for at in range(10, 20)]
        keys = [("topic.005", "g.005"), ("topic.005", "no.such"), ("no.such", "g.005")]
        [named] = (await mq.admin.figures_page(keys=keys)).values()
        assert [(each.topic, each.name) for each in named.groups] == keys[:1]
        [busy] = (await mq.admin.figures_page("topics", "rate", limit=2)).values()
        assert {each.topic for each in busy.topics} == {"topic.029", "topic.028"}


async def test_a_group_that_is_gone_is_on_no_page_and_a_new_one_soon() -> None:
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        await fill(mq)
        await mq.admin.figures_page()
        await mq.admin.delete_group("topic.003", "g.003")
        await mq.admin.create_group("topic.003", "new")
        [page] = (await mq.admin.figures_page(limit=100)).values()
        assert "g.003" not in [each.name for each in page.groups], "rows are of this moment"
        async with asyncio.timeout(10):
            while "new" not in [each.name for each in page.groups]:
                await asyncio.sleep(0.1)
                [page] = (await mq.admin.figures_page(limit=100)).values()


async def test_what_makes_no_sense_is_refused() -> None:
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        for wrong in (
            {"sort": "colour"},
            {"kind": "topics", "sort": "age"},
            {"limit": 0},
            {"limit": 100_000},
            {"sort": "age", "after": "x" * 50},
            {"keys": [("t", "g")] * 501},
        ):
            with pytest.raises(BadRequest):
                await mq.admin.figures_page(**wrong)


async def test_rounds_see_every_group_and_what_is_shown_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampled_figures, "ROUND", 4)
    monkeypatch.setattr(sampled_figures, "WORST", 2)
    monkeypatch.setattr(sampled_figures, "GENTLE_S", 0.0)
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        await fill(mq)
        groups, topics = SampledGroups(), SampledTopics()
        admin = mq.admin.tolerant()
        await groups.look(admin, 0.0)
        expected = group_views(await admin.groups(), await admin.group_figures())
        assert sorted(groups.views) == list(expected), "the first look goes around once"
        assert {key: view.counts for key, view in groups.views.items()} == {
            key: view.counts for key, view in expected.items()
        }
        groups.pin([("topic.020", "g.020")], 0.0)
        await mq.send("topic.020", b"one more")
        looked = await groups.look(admin, 1.0)
        assert ("topic.020", "g.020") in looked and len(looked) < GROUPS
        assert groups.views["topic.020", "g.020"].ready == 22
        await mq.admin.delete_group("topic.011", "g.011")
        for at in range(GROUPS // 4 + 2):
            await groups.look(admin, 100.0 + at)
        assert ("topic.011", "g.011") not in groups.views
        listed = await admin.topics()
        for at in range(GROUPS // 4 + 2):
            await topics.look(admin, listed, float(at))
        assert len(topics.views) == GROUPS
        assert all(view.rate_in > 0 for view in topics.views.values())


async def test_lists_come_in_pages_and_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every group once, also several of one topic, private lanes, and groups that come and go."""
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        await fill(mq)
        for number in range(5):
            await mq.admin.create_group("topic.007", f"more.{number}")
        whole = {(each.topic, each.name) for each in await mq.admin.groups()}
        lines = await mq.admin.ledger()
        for size in (1, 2, 3, 7, 34, 35, 36):
            monkeypatch.setattr(admin_groups, "GROUPS_PAGE", size)
            listed = [(each.topic, each.name) for each in await mq.admin.groups()]
            assert len(listed) == len(whole) and set(listed) == whole
            assert listed == sorted(listed)
            assert await mq.admin.ledger() == lines
            figures = await mq.admin.group_figures()
            assert {(each.topic, each.group) for each in figures} == whole
            of_one = await mq.admin.groups("topic.007")
            assert [each.name for each in of_one] == ["g.007", *(f"more.{at}" for at in range(5))]
            assert [each.topic for each in await mq.admin.groups(group="more.3")] == ["topic.007"]


async def test_a_list_without_a_limit_is_answered_whole() -> None:
    """As clients of earlier releases ask."""
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        await fill(mq)
        [answer] = (await mq.admin._fan_out.ask(Command.GROUP_LIST, GroupFind(), Groups)).values()
        assert [each.name for each in answer.groups] == [f"g.{at:03}" for at in range(GROUPS)]
        assert not answer.following


@pytest.mark.parametrize("wrong", [{"limit": -1}, {"limit": 10**6}, {"limit": 5, "after": "x y"}])
async def test_a_page_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        for command, kind in ((Command.GROUP_LIST, Groups), (Command.LEDGER, Ledger)):
            with pytest.raises(BadRequest):
                await mq.admin._fan_out.ask(command, GroupFind(**wrong), kind)


async def test_topics_come_in_pages_and_one_is_found_among_many_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        await fill(mq)
        await mq.admin.create_topic("topic")
        await mq.admin.create_topic("zebra")
        names = ["topic", *(f"topic.{at:03}" for at in range(GROUPS)), "zebra"]
        for size in (1, 2, 31, 32, 33):
            monkeypatch.setattr(admin_topics, "TOPICS_PAGE", size)
            assert [each.name for each in await mq.admin.topics()] == names
            assert [each.name for each in await mq.admin.topics("topic.01")] == names[11:21]
        assert (await mq.admin.topic("topic")).name == "topic"
        assert (await mq.admin.topic("zebra")).name == "zebra"
        with pytest.raises(TopicNotFound):
            await mq.admin.topic("topi")
