"""`@app.broadcast` on a real node: every instance, in order, through failures and restarts."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

import ternmq
from tests.integration.processes import Node
from tests.waiting import until


def an_app(node: Node, heard: list[bytes], *, position: Path | None = None) -> ternmq.App:
    app = ternmq.App(node.url, app="shop")

    @app.broadcast("cache.drop", position=position)
    async def drop(message: ternmq.Message) -> None:
        heard.append(message.body)
        if message.body == b"bad":
            raise ValueError("this one cannot be dropped")

    return app


async def test_every_instance_of_an_app_is_called_for_every_message_in_order(node: Node) -> None:
    """Q15."""
    one: list[bytes] = []
    other: list[bytes] = []
    async with ternmq.connect(node.url, app="a") as mq:
        await mq.send("cache.drop", b"before")
        async with an_app(node, one), an_app(node, other):
            for body in (b"1", b"bad", b"2"):
                await mq.send("cache.drop", body)
            await until(lambda: len(one) == len(other) == 3)
        assert one == other == [b"1", b"bad", b"2"]
        assert await mq.admin.groups("cache.drop") == []


async def test_an_instance_with_a_position_goes_on_where_it_stopped(
    node: Node, tmp_path: Path
) -> None:
    """R5."""
    heard: list[bytes] = []
    async with ternmq.connect(node.url, app="a") as mq:
        await mq.admin.create_topic("cache.drop")
        for body in (b"1", b"2"):
            async with an_app(node, heard, position=tmp_path / "position"):
                await mq.send("cache.drop", body)
                await until(partial(heard.__contains__, body))
            await mq.send("cache.drop", b"while it was away after " + body)
        async with an_app(node, heard, position=tmp_path / "position"):
            await until(lambda: heard[-1] == b"while it was away after 2")
    assert list(dict.fromkeys(heard)) == [
        b"1",
        b"while it was away after 1",
        b"2",
        b"while it was away after 2",
    ]


async def test_a_plain_function_runs_in_a_thread_and_may_finish_when_the_app_stops(
    node: Node,
) -> None:
    app, loop = ternmq.App(node.url, app="shop"), asyncio.get_running_loop()
    begun, ended, go_on = asyncio.Event(), [], asyncio.Event()

    @app.broadcast("cache.drop")
    def drop(message: ternmq.Message) -> None:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(20)
        ended.append(message.body)

    async with ternmq.connect(node.url, app="a") as mq:
        await mq.admin.create_topic("cache.drop")
        await app.start()
        await mq.send("cache.drop", b"1")
        await begun.wait()
        stopping = asyncio.create_task(app.stop())
        await asyncio.sleep(0)
        go_on.set()
        await stopping
    assert ended == [b"1"]


async def test_a_topic_that_is_not_there_is_said_at_the_start(node: Node) -> None:
    app = an_app(node, [])
    with pytest.raises(ternmq.TopicNotFound, match=r"cache\.drop"):
        await app.start()
