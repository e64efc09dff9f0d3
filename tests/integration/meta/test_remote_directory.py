"""Standings over real sockets: asked of one meta server, heard through another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from ternmq.core.errors import (
    BadRequest,
    Conflict,
    MasterAlive,
    NotInSync,
    Unauthorized,
    Unavailable,
)
from ternmq.discovery.directory import ClusterDirectory
from ternmq.discovery.routes import RouteCache
from ternmq.node.joining.remote_directory import RemoteDirectory, remote_directory
from ternmq.rpc.connection import Connection, request
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello
from ternmq.wire.messages.standings import (
    Claim,
    Member,
    MemberJoin,
    Standing,
    StandingFind,
    Standings,
    standing_of,
)
from ternmq.wire.messages.topics import TopicSettings
from ternmq.wire.numbers import Command
from tests.integration.meta.noting_meta import Meta, meta
from tests.node_greeting import greeting

BROKER = greeting()
ONE = Member(id="1" * 16, name="one", address="h1:1")
TWO = Member(id="2" * 16, name="two", address="h2:1")


@asynccontextmanager
async def directory(*metas: Meta) -> AsyncIterator[RemoteDirectory]:
    cache = RouteCache([each.address for each in metas], BROKER)
    async with remote_directory(cache) as made:
        yield made
    await cache.close()


async def test_members_agree_through_different_meta_servers_in_under_a_second(
    tmp_path: Path,
) -> None:
    """Q10, Q12: any of them serves a change, and every one tells it."""
    path = tmp_path / "r.db"
    async with meta(path) as a, meta(path) as b, directory(a) as one, directory(b) as two:
        heard: asyncio.Queue[Standing] = asyncio.Queue()
        two.on_standing_changed(heard.put_nowait)
        directory_of_one: ClusterDirectory = one
        await directory_of_one.join_group("main", "realtime", ONE)
        await two.join_group("main", "realtime", TWO)
        led = await one.lead("main", ONE.id)
        both = [ONE.id, TWO.id]
        for _ in range(3):
            wide = await one.change_in_sync(
                "main", epoch=led.epoch, in_sync=both, version=led.version
            )
            async with asyncio.timeout(1):
                while await heard.get() != wide:
                    pass
            assert two.standing("main") == wide
            led = await two.leave_in_sync("main", TWO.id, epoch_seen=led.epoch)

        async with directory(b, a) as late:
            assert late.standings() == [led]


async def test_what_is_refused_says_so_over_the_network(tmp_path: Path) -> None:
    async with meta(tmp_path / "r.db") as a, directory(a) as one:
        assert await one.read_standing("main") is None
        with pytest.raises(BadRequest, match="nobody joined"):
            await one.lead("main", ONE.id)
        await one.join_group("main", "realtime", ONE)
        await one.join_group("main", "realtime", TWO)
        led = await one.lead("main", ONE.id)
        with pytest.raises(NotInSync):
            await one.lead("main", TWO.id, force=True)
        with pytest.raises(MasterAlive):
            await one.lead("main", TWO.id, accept_loss=True)
        with pytest.raises(Conflict) as raised:
            await one.change_in_sync("main", epoch=9, in_sync=[ONE.id], version=led.version)
        assert standing_of(raised.value) == led
        with pytest.raises(Conflict, match="last in-sync"):
            await one.leave_in_sync("main", ONE.id, epoch_seen=led.epoch)


async def test_applications_may_look_and_not_join(tmp_path: Path) -> None:
    async with meta(tmp_path / "r.db") as a, directory(a) as one:
        standing = await one.join_group("main", "realtime", ONE)
        shop = Hello(protocol=PROTOCOL_VERSION, app="shop", version="0", session=bytes(16))
        connection = await Connection.open(a.address, shop, timeout=5)
        found = await request(connection, Command.STANDINGS, StandingFind(), Standings, timeout=5)
        assert found.standings == [standing]
        join = MemberJoin(broker_group="main", kind="realtime", member=TWO)
        with pytest.raises(Unauthorized):
            await request(connection, Command.MEMBER_JOIN, join, Standing, timeout=5)
        await connection.close()


async def test_a_copy_never_goes_back_to_an_older_version(tmp_path: Path) -> None:
    async with meta(tmp_path / "r.db") as a, directory(a) as one:
        old = await one.join_group("main", "realtime", ONE)
        new = await one.lead("main", ONE.id)
        told: list[Standing] = []
        one.on_standing_changed(told.append)
        one.learn_standings([old, new])

        assert one.standing("main") == new and told == []
        one.learn_standings([old], another=True)
        assert told == [old], "another registry counts anew"


async def test_topics_that_a_registry_has_never_heard_of_are_not_taken_for_deleted(
    tmp_path: Path,
) -> None:
    """A copy from before they were made is put back: their messages stay."""
    async with meta(tmp_path / "r.db") as a:
        cache = RouteCache([a.address], BROKER)
        one = RemoteDirectory(cache)
        deleted: list[str] = []
        one.on_topic_deleted(lambda topic: deleted.append(topic.name))
        gone = await a.service.create_topic("gone", TopicSettings())
        await a.service.create_topic("kept", TopicSettings())
        await one.refresh()
        never = msgspec.structs.replace(gone, name="never", id=gone.id - 1)
        one._put(never)
        await a.service.delete_topic("gone")
        await one.refresh()

        assert deleted == ["gone"]
        assert [topic.name for topic in one.topics()] == ["kept"]
        await cache.close()


async def test_users_that_a_registry_has_never_heard_of_are_gone_at_once(tmp_path: Path) -> None:
    """After a registry was replaced nobody could remove them: they would come in for ever (S4)."""
    async with meta(tmp_path / "r.db") as a:
        cache = RouteCache([a.address], BROKER)
        one = RemoteDirectory(cache)
        told: list[str] = []
        one.on_topic_deleted(lambda topic: told.append(topic.name))
        kept = await a.service.create_topic("kept", TopicSettings())
        await one.refresh()
        users = {"%access.a": kept.id - 1, "%access.b": kept.id, "%access.c": kept.id + 100}
        for name, number in users.items():
            one._put(msgspec.structs.replace(kept, name=name, id=number))
        await one.refresh()

        assert sorted(told) == sorted(users)
        assert [topic.name for topic in one.topics()] == ["kept"]
        await cache.close()


async def test_data_of_another_registry_is_brought_along_when_that_one_is_lost_for_sure(
    tmp_path: Path,
) -> None:
    held = Standing(
        broker_group="main", version=5, epoch=3, line="other", members=[ONE], in_sync=[ONE.id]
    )
    claim = Claim(member=ONE.id, held=held, accepted_epoch=3, data_epoch=3)
    async with meta(tmp_path / "r.db") as a, meta(tmp_path / "own.db") as b:
        async with directory(a, b) as one:
            with pytest.raises(Unavailable, match="began in the registry of cluster other"):
                await one.join_group("main", "realtime", ONE, data_epoch=3, claim=claim)
        async with directory(a) as alone:
            standing = await alone.join_group("main", "realtime", ONE, data_epoch=3, claim=claim)
            assert standing.in_sync == [ONE.id]
