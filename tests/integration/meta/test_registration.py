"""Registering with real meta servers, and topics over the network."""

import asyncio
import threading
from pathlib import Path

import pytest

from ternmq.core.errors import AlreadyExists, Unavailable
from ternmq.discovery.routes import RouteCache
from ternmq.node.joining import heartbeat, registration, remote_directory
from ternmq.node.joining.registration import registered
from ternmq.wire.messages.servers import Route
from ternmq.wire.messages.standings import Member
from ternmq.wire.messages.topics import Topic, TopicSettings
from tests.integration.meta.noting_meta import meta
from tests.node_greeting import greeting
from tests.waiting import until

HELLO = greeting("later", "delay")
ROUTE = Route(broker_group="later", address="127.0.0.1:1", kind="delay")


async def test_a_server_registers_with_every_meta_server_and_leaves(tmp_path: Path) -> None:
    async with meta(tmp_path / "a.db") as one, meta(tmp_path / "b.db") as other:
        async with registered([one.address, other.address], HELLO, ROUTE):
            await until(lambda: one.routes.current().servers == [ROUTE])
            await until(lambda: other.routes.current().servers == [ROUTE])

        assert one.routes.current().servers == other.routes.current().servers == []
        assert one.routes.current().away == [ROUTE]


async def test_a_meta_server_that_comes_back_learns_of_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "AGAIN_S", 0.02)
    async with meta(tmp_path / "steady.db") as steady:
        async with meta(tmp_path / "a.db") as first:
            address = first.address
            running = registered([steady.address, address], HELLO, ROUTE)
            await running.__aenter__()
            await until(lambda: first.routes.current().servers == [ROUTE])
        async with meta(tmp_path / "a.db", int(address.rpartition(":")[2])) as again:
            await until(lambda: again.routes.current().servers == [ROUTE])
            await running.__aexit__(None, None, None)


async def test_who_cannot_register_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "FIRST_WITHIN_S", 0.2)
    second = Route(broker_group="later", address="127.0.0.1:2", kind="delay")
    async with meta(tmp_path / "a.db") as one, registered([one.address], HELLO, ROUTE):
        with pytest.raises(AlreadyExists, match="give this one another name"):
            async with registered([one.address], HELLO, second):
                pass
    with pytest.raises(Unavailable, match="cannot reach"):
        async with registered([one.address], HELLO, ROUTE):
            pass


class Stuck:
    """A server with a loop of its own that can be kept from turning."""

    def __init__(self, address: str) -> None:
        self.go = threading.Event()
        self.stopped = threading.Event()
        self._end: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(address)), daemon=True
        )
        self._thread.start()

    async def _serve(self, address: str) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with registered([address], HELLO, ROUTE):
            await self._end.wait()

    def hang(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.stopped.set)
        self._loop.call_soon_threadsafe(self.go.wait, 20)

    async def end(self) -> None:
        assert self._loop is not None and self._end is not None
        self.go.set()
        self._loop.call_soon_threadsafe(self._end.set)
        await asyncio.to_thread(self._thread.join)


async def test_a_server_whose_loop_hangs_falls_silent_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q11: a process that is there and does nothing must not stay master."""
    monkeypatch.setattr(registration, "HANGS_AFTER_S", 0.5)
    monkeypatch.setattr(heartbeat, "AGAIN_S", 0.02)
    async with meta(tmp_path / "a.db", dead_after_ms=1_500) as one:
        server = Stuck(one.address)
        await until(lambda: one.routes.current().servers == [ROUTE])
        server.hang()
        await until(server.stopped.is_set)
        registers = one.heartbeats()
        await until(lambda: one.heartbeats() > registers + 5)  # Busy is not dead.
        assert one.routes.current().servers == [ROUTE]
        await until(lambda: one.routes.current().servers == [])
        server.go.set()
        await until(lambda: one.routes.current().servers == [ROUTE])
        await server.end()
        assert one.routes.current().servers == []


async def test_what_a_server_says_anew_is_known_at_once(tmp_path: Path) -> None:
    member = Member(id="1" * 16, name="one", address="h1:1")
    route = Route(broker_group="main", address=member.address)
    async with meta(tmp_path / "a.db", heartbeat_ms=60_000) as one:
        await one.service.join_group("main", "realtime", member)
        led = await one.service.lead("main", member.id)
        async with registered([one.address], greeting(), route, member=member.id) as said:
            assert [each.role for each in one.routes.current().servers] == ["replica"]
            said.set_epoch(led.epoch)
            await until(lambda: one.routes.current().servers == [route])
            said.set_epoch(0)
            await until(lambda: one.routes.current().servers != [route])
        assert not one.service.liveness.may_be_alive(member.id), "it said goodbye"


async def test_topics_are_known_made_changed_and_deleted_from_afar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_directory, "PAGE", 2)
    async with meta(tmp_path / "a.db") as one:
        for name in ("a", "b", "c"):
            await one.service.create_topic(name, TopicSettings())
        cache = RouteCache([one.address], HELLO)
        deleted: list[Topic] = []
        changed: list[Topic] = []
        async with remote_directory.remote_directory(cache) as directory:
            directory.on_topic_deleted(deleted.append)
            directory.on_topic_changed(changed.append)
            assert sorted(topic.name for topic in directory.topics()) == ["a", "b", "c"]
            made = await directory.create_topic("d", TopicSettings())
            assert directory.topic("d") == made == one.service.topic("d")
            await one.service.delete_topic("a")
            await one.service.change_topic("b", lambda _: TopicSettings(closed=True))
            await until(lambda: deleted and changed)
        await cache.close()

    assert [topic.name for topic in deleted] == ["a"]
    assert changed[0].settings.closed
