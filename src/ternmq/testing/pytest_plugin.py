"""Fixtures for tests of applications: a real node in process, and a client of it.

    def test_an_order_is_billed(tern_mq, tern_topic):
        tern_mq.send(tern_topic, b"o-1")

pytest finds them by itself where ternmq is installed. The node runs in the background thread of
`ternmq.sync`, once for all tests of a run, so names must not collide: `tern_topic` is a new one for
each test. A test that turns the clock or stops the node runs its own (`ternmq.testing.node`).
Importing this module imports nothing of ternmq: a run that uses no fixture pays nothing.
"""

import asyncio
import secrets
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ternmq.sync import Client

START_S = 60.0


@pytest.fixture(scope="session")
def tern_url() -> Iterator[str]:
    """The url of a node that runs as long as the tests do."""
    from ternmq.sync.loop_thread import loop_thread
    from ternmq.testing.node import node

    loop = loop_thread().loop
    ready: Future[str] = Future()
    stop = asyncio.Event()

    async def serve() -> None:
        try:
            async with node() as url:
                ready.set_result(url)
                await stop.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise

    serving = asyncio.run_coroutine_threadsafe(serve(), loop)
    yield ready.result(START_S)
    loop.call_soon_threadsafe(stop.set)
    serving.result(START_S)


@pytest.fixture
def tern_mq(tern_url: str) -> "Iterator[Client]":
    """A client of that node without `await`; `ternmq.connect(tern_url)` is one with."""
    from ternmq import sync

    with sync.connect(tern_url, app="test") as mq:
        yield mq


@pytest.fixture
def tern_topic() -> str:
    """A name that no other test has."""
    return f"test-{secrets.token_hex(6)}"
