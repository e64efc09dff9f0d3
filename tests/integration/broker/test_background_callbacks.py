"""Errors that nobody thought of, injected into callbacks and loops of servers: whoever waits is
told, and what runs beside the calls goes on."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

import ternmq
from ternmq.broker.publishing import confirm
from ternmq.core.errors import TernError
from ternmq.core.lifecycle import report_bugs
from ternmq.discovery.routes import RouteCache
from ternmq.meta.directory import MetaDirectory
from ternmq.node.joining.remote_directory import RemoteDirectory
from ternmq.replication.leading.replica_stream import ReplicaStream
from ternmq.rpc.server import Listener, ServerLimits
from ternmq.testing import node
from ternmq.wire.messages.topics import TopicSettings
from tests.integration.meta.noting_meta import meta
from tests.integration.meta.test_remote_directory import directory
from tests.unit.discovery.test_routes import DELAY, HELLO, MASTER, Meta, address_of, serving
from tests.waiting import until


class Once:
    """A function that fails the first time that it is called."""

    def __init__(self, before: Callable[..., Any]) -> None:
        self._before = before
        self.failed = False

    def __get__(self, instance: Any, _owner: Any) -> Callable[..., Any]:
        return lambda *args, **options: self(instance, *args, **options)

    def __call__(self, *args: Any, **options: Any) -> Any:
        if not self.failed:
            self.failed = True
            raise ZeroDivisionError("nobody thought of this")
        return self._before(*args, **options)


def inject(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Once:
    once = Once(getattr(owner, name))
    monkeypatch.setattr(owner, name, once)
    return once


async def test_a_topic_whose_making_is_not_taken_in_is_answered_and_the_next_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with node() as url, ternmq.connect(url, request_timeout=20) as mq:
        inject(monkeypatch, MetaDirectory, "_add_topics")
        with capture_logs() as logs, pytest.raises(TernError, match="bug"):
            await mq.admin.create_topic("orders")
        assert (await mq.admin.create_topic("bills")).name == "bills"
        assert (await mq.admin.create_topic("orders")).name == "orders"

    assert "the directory failed by a bug" in [line["event"] for line in logs]


async def test_a_change_of_the_registry_that_is_not_taken_in_is_not_said_to_be_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with node() as url, ternmq.connect(url, request_timeout=20) as mq:
        await mq.admin.create_topic("orders")
        inject(monkeypatch, MetaDirectory, "_drop_topics")
        with pytest.raises(TernError, match="bug"):
            await mq.admin.delete_topic("orders")
        await mq.admin.create_topic("bills")
        await mq.admin.delete_topic("bills")


async def test_a_confirmation_that_fails_by_a_bug_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with node() as url, ternmq.connect(url, request_timeout=20) as mq:
        receipt = await mq.send("orders", b"x")
        async with mq.consumer("orders", group="g") as consumer:
            message = await anext(consumer)
            once = inject(monkeypatch, confirm, "look_up")
            with capture_logs() as logs:
                await message.ack()
                async with asyncio.timeout(10):  # It is told at once, and asks again.
                    await mq.confirm(receipt, "g", timeout=timedelta(seconds=20))
    assert once.failed
    assert "request failed by a bug" in [line["event"] for line in logs]


async def test_topics_and_routes_are_followed_on_after_a_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with meta(tmp_path / "r.db") as a, directory(a) as one:
        told = inject(monkeypatch, RemoteDirectory, "follow")
        for at in range(20):
            await a.service.create_topic(f"t{at}", TopicSettings())
        await until(lambda: told.failed and one.topic("t19"), "the news after the bug")


async def test_routes_are_watched_on_after_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Meta(MASTER)
    async with serving(told) as listener:
        cache = RouteCache([address_of(listener)], HELLO)
        await cache.refresh()
        learnt = inject(monkeypatch, RouteCache, "_learn")
        for servers in ([MASTER], [MASTER, DELAY]):
            await until(lambda: told.waiting, "a question that waits")
            told.change(*servers)
        await until(lambda: learnt.failed, "a change that could not be taken in")
        await until(lambda: cache.masters("delay") == [DELAY], "the same change, later")
        await cache.close()


async def test_whoever_failed_to_hear_of_routes_hears_of_them_again() -> None:
    """Else an ordered send waits for slots that are known."""
    heard: list[int] = []

    def hear() -> None:
        heard.append(len(cache.masters("delay")))
        if heard == [1]:
            raise ZeroDivisionError("nobody thought of this")

    told = Meta(MASTER)
    async with serving(told) as listener:
        cache = RouteCache([address_of(listener)], HELLO)
        await cache.refresh()
        cache.changed.append(hear)
        await until(lambda: told.waiting, "a question that waits")
        told.change(MASTER, DELAY)
        await until(lambda: heard == [1, 1], "the same routes once more")
        await cache.close()


async def test_a_listener_sweeps_on_after_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    swept = inject(monkeypatch, Listener, "_sweep_now")
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with node() as url, ternmq.connect(url) as mq:
        await until(lambda: swept.failed, seconds=3 * ServerLimits().sweep + 5)
        monkeypatch.undo()
        again = inject(monkeypatch, Listener, "_sweep_now")
        await until(lambda: again.failed, seconds=3 * ServerLimits().sweep + 5)
        await mq.send("orders", b"x")


async def test_a_replica_whose_stream_failed_by_a_bug_is_hung_up_on() -> None:
    class Peer:
        closed = False
        reason: Any = None

        def close(self, reason: Any) -> None:
            self.closed, self.reason = True, reason

    peer = Peer()
    stream = ReplicaStream(peer, "m", 1, {}, None)  # type: ignore[arg-type]
    stream.streams = {0: None}  # type: ignore[dict-item]
    with capture_logs() as logs:
        stream._tell()

    assert isinstance(peer.reason, TernError)
    assert logs[0]["event"] == "sending to a replica failed by a bug"


async def test_what_nobody_guards_is_in_our_log_with_its_traceback() -> None:
    report_bugs()
    with capture_logs() as logs:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await until(lambda: logs, "a line")

    assert logs[0]["event"] == "failed by a bug"
    assert isinstance(logs[0]["exc_info"], ZeroDivisionError)
