"""Reading and looking after a topic that lies on two broker groups (Q1, J2)."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import ternmq
from ternmq.client.admin.merge_answers import merged_group, merged_lines
from ternmq.client.admin.replay import Replay
from ternmq.core.errors import BadRequest
from ternmq.wire.messages.groups import GroupSettings
from tests.integration.broker_groups import Several, several
from tests.waiting import until


@pytest.fixture
async def cluster() -> AsyncIterator[Several]:
    async with several("east", "west") as running:
        yield running


@pytest.fixture
async def mq(cluster: Several) -> AsyncIterator[ternmq.Client]:
    async with ternmq.connect(cluster.url, app="test") as client:
        yield client


async def send(mq: ternmq.Client, count: int = 20, topic: str = "orders") -> None:
    """One after the other, each a millisecond apart, on both broker groups."""
    used = set()
    for number in range(count):
        used.add((await mq.send(topic, b"%d" % number, key="k")).broker_group)
        await asyncio.sleep(0.002)
    assert used == {"east", "west"}


async def test_a_topic_is_read_in_the_order_of_time_over_all_broker_groups(
    mq: ternmq.Client,
) -> None:
    await send(mq)

    read = [message async for message in mq.read("orders")]

    assert [message.body for message in read] == [b"%d" % number for number in range(20)]
    assert {message.broker_group for message in read} == {"east", "west"}
    west = [message.body async for message in mq.read("orders", broker_group="west")]
    assert west == [message.body for message in read if message.broker_group == "west"]
    later = [m.body async for m in mq.read("orders", start=read[10].stored_at)]
    assert later == [b"%d" % number for number in range(10, 20)]


async def test_a_position_is_one_sequence_for_each_broker_group(mq: ternmq.Client) -> None:
    await send(mq)
    ends = await mq.admin.seek_all("orders", ternmq.Start(at="latest"))
    start = {group: sought.end - 1 for group, sought in ends.items()}

    assert len([message async for message in mq.read("orders", start=start)]) == 2
    assert len([message async for message in mq.read("orders", end=start)]) == 18
    with pytest.raises(BadRequest, match="belongs to one broker group"):
        [message async for message in mq.read("orders", start=3)]
    with pytest.raises(BadRequest, match="no broker group 'north'"):
        [message async for message in mq.read("orders", start={"north": 3})]


async def test_who_follows_gets_what_comes_anywhere_also_on_a_new_broker_group(
    cluster: Several, mq: ternmq.Client
) -> None:
    seen: dict[str, set[bytes]] = {}

    async def follow() -> None:
        async for message in mq.read("orders", follow=True):
            seen.setdefault(message.broker_group, set()).add(message.body)

    await send(mq, 4)
    following = asyncio.create_task(follow())
    await until(lambda: len(seen) == 2)
    await cluster.add("north")
    stored: dict[bytes, str] = {}
    while "north" not in stored.values():
        body = b"later %d" % len(stored)
        stored[body] = (await mq.send("orders", body)).broker_group
    await until(lambda: all(body in seen.get(group, ()) for body, group in stored.items()))
    following.cancel()
    await asyncio.wait([following])


async def test_every_instance_of_a_broadcast_hears_all_broker_groups_and_goes_on(
    mq: ternmq.Client, tmp_path: object
) -> None:
    from pathlib import Path

    position = Path(str(tmp_path)) / "position"
    await send(mq, 4)
    heard: list[bytes] = []
    async with asyncio.timeout(20):
        for bodies in ({b"a", b"b", b"c"}, {b"d", b"e"}):
            if heard:
                for body in sorted(bodies):
                    await mq.send("orders", body)
            async with mq.broadcast("orders", position=position) as every:
                if not heard:
                    for body in sorted(bodies):
                        await mq.send("orders", body)
                left = set(bodies)
                async for message in every:
                    heard.append(message.body)
                    left.discard(message.body)
                    if not left:
                        break
    assert sorted(set(heard)) == [b"a", b"b", b"c", b"d", b"e"]


async def test_ledger_groups_and_figures_are_named_and_add_up(mq: ternmq.Client) -> None:
    await send(mq)
    async with mq.consumer("orders", group="g") as consumer:
        async for message in consumer:
            await message.ack()
            if message.body == b"19":
                break
    lines = await mq.admin.ledger("orders", "g")
    groups = await mq.admin.groups("orders", "g")
    figures = await mq.admin.group_figures("orders", "g")

    assert sorted(line.broker_group for line in lines) == ["east", "west"]
    [line] = merged_lines(lines)
    assert (line.total, line.broker_group) == (20, "")
    assert merged_group(groups).ledger == line
    assert {each.broker_group for each in figures} == {"east", "west"}
    assert {each.broker_group for each in await mq.admin.topic_figures("orders")} == {
        "east",
        "west",
    }


async def test_settings_reach_every_broker_group_also_one_that_does_not_know_the_group(
    cluster: Several, mq: ternmq.Client
) -> None:
    """A pause that a new broker group has not heard of would be none."""
    await send(mq, 2)
    await mq.admin.create_group("orders", "g", ternmq.Start())
    await cluster.add("north")
    await until(lambda: "north" in mq.broker_groups())

    await mq.admin.set_group("orders", "g", paused=True)

    found = {group.broker_group: group for group in await mq.admin.groups("orders", "g")}
    assert sorted(found) == ["east", "north", "west"]
    assert all(group.settings.paused for group in found.values())


async def test_a_consumer_brings_the_settings_of_its_group_to_a_new_broker_group(
    cluster: Several, mq: ternmq.Client
) -> None:
    """A paused group is not handed out by a broker group that was added meanwhile."""
    await send(mq, 2)
    async with mq.consumer("orders", group="g"):
        await mq.admin.set_group("orders", "g", paused=True, rate=7)
        await cluster.add("north")
        found: dict[str, GroupSettings] = {}

        async def joined() -> bool:
            groups = await mq.admin.tolerant().groups("orders", "g")
            found.update({group.broker_group: group.settings for group in groups if group.members})
            return "north" in found

        await until(joined)
    assert (found["north"].paused, found["north"].rate) == (True, 7)


async def test_a_reset_moves_the_group_everywhere_or_on_the_one_broker_group_named(
    mq: ternmq.Client,
) -> None:
    await send(mq)
    await mq.admin.create_group("orders", "g", ternmq.Start(at="earliest"))

    done = await mq.admin.reset_group("orders", "g", ternmq.Start(at="latest"))
    assert (done.skipped, done.from_sequence, done.to_sequence) == (20, 0, 20)
    assert sorted(done.each) == ["east", "west"]
    await mq.admin.reset_group("orders", "g", ternmq.Start(at="earliest"))
    with pytest.raises(BadRequest, match="belongs to one broker group"):
        await mq.admin.reset_group("orders", "g", ternmq.Start(at="sequence", value=1))
    one = ternmq.Start(at="sequence", value=1)
    forward = await mq.admin.reset_group("orders", "g", one, broker_group="west")
    assert (forward.skipped, list(forward.each)) == (1, ["west"])


async def test_a_replay_copies_from_every_broker_group(mq: ternmq.Client) -> None:
    await send(mq)
    await mq.admin.create_group("orders", "g", ternmq.Start(at="latest"))

    done = await mq.admin.replay(Replay(topic="orders", into="g"))

    assert (done.total, done.copied) == (20, 20)
    lanes = {line.lane: line.total for line in merged_lines(await mq.admin.ledger(group="g"))}
    assert 20 in lanes.values()


async def test_dead_letters_are_handled_where_they_lie(mq: ternmq.Client) -> None:
    await send(mq)
    async with mq.consumer("orders", group="g") as consumer:
        rejected = 0
        async for message in consumer:
            await message.reject("no")
            rejected += 1
            if rejected == 20:
                break
    with pytest.raises(BadRequest, match="say which, by broker_group"):
        await mq.admin.open_dead_letters("g")

    handled = 0
    for group in await mq.admin.broker_groups():
        ranges = await mq.admin.open_dead_letters("g", group)
        handled += (await mq.admin.resend_dead_letters("g", ranges, group)).handled

    assert handled == 20
    assert await mq.admin.expired_dead_letters("g") == 0


async def test_messages_are_found_on_every_broker_group(mq: ternmq.Client) -> None:
    await send(mq)

    found = await mq.find("orders", key="k")

    assert [one.message.body for one in found] == [b"%d" % at for at in reversed(range(20))]
    assert {one.broker_group for one in found} == {"east", "west"}
    [same] = await mq.find(id=found[3].message.id)
    assert same.broker_group == found[3].broker_group == same.message.broker_group


async def test_transactions_are_listed_and_ended_wherever_they_are(mq: ternmq.Client) -> None:
    for name, group in (("one", "east"), ("two", "west")):
        await mq.detached(name, broker_group=group).send("orders", b"half")

    opened = await mq.admin.halves()
    assert [(one.name, one.broker_group) for one in opened.transactions] == [
        ("one", "east"),
        ("two", "west"),
    ]
    assert len((await mq.admin.halves(limit=1)).transactions) == 1
    assert (await mq.commit_detached("two")).state == "committed"
    assert (await mq.commit_detached("one")).state == "committed"
    assert (await mq.admin.halves()).total == 0
