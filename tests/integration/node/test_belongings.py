"""S3, H1: what users may have of a server, and whose groups, topics and dead letters are."""

from collections.abc import Iterator

import pytest

from ternmq.core.errors import Forbidden, OverLimit
from tests.integration.node.test_access import ON, admin_of, user_of
from tests.integration.processes import Node, NodeFactory
from tests.waiting import until


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One node for all tests here: each has users and topics of its own."""
    factory = NodeFactory(tmp_path_factory.mktemp("belongings"))
    try:
        yield factory(environment=ON)
    finally:
        factory.finish()


async def test_a_quota_holds_over_a_users_topics_rates_and_transactions(secured: Node) -> None:
    """S3: over it is `over_limit`; who is not of that user does not notice."""
    rights = "allow publish *", "allow manage *"
    async with (
        admin_of(secured) as admin,
        user_of(secured, admin, "heavy", *rights, delivery_timeout=1) as heavy,
        user_of(secured, admin, "light", "allow publish *") as light,
    ):
        values = {"topics_max": 2, "halves_max": 1, "rate": 5}
        assert (await admin.admin.set_quota("heavy", values)).quota.topics_max == 2
        for quota in ({"rate": 9}, {"rate": 0}):
            with pytest.raises(Forbidden, match="grant"):
                await heavy.admin.set_quota("heavy", quota)
        with pytest.raises(Forbidden, match="grant"):
            await heavy.admin.set_quota("*", {"rate": 9})
        await heavy.admin.create_topic("heavy.1")
        await heavy.send("heavy.2", b"the broker makes it, for its user")
        for made in (heavy.admin.create_topic("heavy.3"), heavy.send("heavy.3", b"x")):
            with pytest.raises(OverLimit, match="has its 2 topics"):
                await made
        await admin.admin.delete_topic("heavy.2")
        await heavy.admin.create_topic("heavy.3")

        async def too_fast() -> bool:
            try:
                await heavy.send_many("heavy.1", [b"x"] * 40)
                await heavy.send("heavy.1", b"x")
            except OverLimit as error:
                return "may send 5 messages a second" in error.message
            return False

        await until(too_fast)
        assert await light.send("heavy.1", b"others go on")
        await admin.admin.set_quota("heavy", {"rate": 0})
        heavy.transaction_checker(lambda check: "unknown")
        async with heavy.transaction() as first:
            await first.send("heavy.1", b"1")
            with pytest.raises(OverLimit, match="has its 1 halves"):
                async with heavy.transaction() as second:
                    await second.send("heavy.1", b"2")


async def test_a_quota_holds_over_groups_and_messages_for_later(
    secured: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3: for groups that consumers or commands make; others do not notice."""
    monkeypatch.setattr("ternmq.client.consuming.subscriptions.START_S", 2.0)
    rights = "allow publish stock", "allow subscribe stock", "allow operate stock"
    async with (
        admin_of(secured) as admin,
        user_of(secured, admin, "hoarder", *rights, delivery_timeout=1) as hoarder,
        user_of(secured, admin, "modest", *rights) as modest,
    ):
        await admin.admin.create_topic("stock")
        values = {"groups_max": 2, "delayed_max": 3}
        assert (await admin.admin.set_quota("hoarder", values)).quota.delayed_max == 3
        async with hoarder.consumer("stock", group="hoarder.1"):
            pass
        await admin.admin.grant("hoarder", "operate", "group:hoarder.*")

        async def made() -> object:
            return await hoarder.admin.create_group("stock", "hoarder.2")

        await until(made, ignoring=Forbidden)
        with pytest.raises(OverLimit, match="has its 2 groups"):
            await hoarder.admin.create_group("stock", "hoarder.3")
        with pytest.raises(OverLimit, match="--groups N"):
            async with hoarder.consumer("stock", group="hoarder.3") as consumer:
                await anext(consumer)
        async with modest.consumer("stock", group="modest.1"):
            pass
        await hoarder.admin.delete_group("stock", "hoarder.1")
        await hoarder.admin.create_group("stock", "hoarder.3")

        await hoarder.send_many("stock", [b"1", b"2", b"3"], delay=3600)
        with pytest.raises(OverLimit, match="3 of its 3 messages for later"):
            await hoarder.send("stock", b"4", delay=3600)
        assert await modest.send("stock", b"others go on", delay=3600)


async def test_a_group_is_no_way_to_make_a_topic_without_the_right(secured: Node) -> None:
    """GROUP_CREATE on a topic that is not there makes it: that needs `manage`, as sending does."""
    rights = "allow operate *", "allow subscribe *"
    async with (
        admin_of(secured) as admin,
        user_of(secured, admin, "sly", *rights) as sly,
    ):
        with pytest.raises(Forbidden, match="manage"):
            await sly.admin.create_group("nobody.made.this", "sly")
        assert "nobody.made.this" not in [each.name for each in await admin.admin.topics()]


async def test_dead_letters_are_read_by_who_may_operate_on_their_topics_too(secured: Node) -> None:
    """H1: a group has letters of several topics; a right to the group alone shows none of them."""
    async with (
        admin_of(secured) as admin,
        user_of(
            secured, admin, "undertaker", "allow operate group:both", "allow operate open"
        ) as undertaker,
    ):
        for topic in ("open", "shut"):
            await admin.admin.create_topic(topic)

        async def die(topic: str) -> None:
            await admin.send(topic, topic.encode())
            async with admin.consumer(topic, group="both", start="earliest") as consumer:
                message = await anext(consumer)
                await message.reject("no")

        await die("open")
        assert [each.body async for each in undertaker.read("%dead.both")] == [b"open"]
        await die("shut")

        async def refused() -> bool:
            try:
                await undertaker.admin.open_dead_letters("both")
            except Forbidden as error:
                return "operate on topic 'shut'" in error.message
            return False

        await until(refused)
        with pytest.raises(Forbidden, match="operate on topic 'shut'"):
            [each async for each in undertaker.read("%dead.both")]
        await admin.admin.grant("undertaker", "operate", "shut")

        async def seen() -> int:
            return len([each.body async for each in undertaker.read("%dead.both")])

        assert await until(seen, ignoring=Forbidden) == 2
