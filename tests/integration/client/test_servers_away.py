"""Applications start while the servers are away, and work when these come (F7 of the trials)."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import ternmq
from ternmq.outbox import Outbox, RelaySettings
from tests.integration.processes import NodeFactory
from tests.waiting import until, wait_until

WORKER = """
import contextlib, os, sys
import ternmq

def say(text):
    print(text, flush=True)

@contextlib.asynccontextmanager
async def lifespan(app):
    say("lifespan begins")
    yield
    say("lifespan ends")

app = ternmq.App(os.environ["TERN_URL"], app="shop", lifespan=lifespan)

@app.on_startup
async def prepare():
    receipt = await app.mq.send("prepared", b"x")
    say(f"prepared {receipt.topic}")

@app.on_shutdown
def tidy():
    say(f"tidied {app.mq.app}")

@app.subscriber("orders", group="billing")
async def bill(message):
    say(f"billed {message.body.decode()}")

app.run()
say("over")
"""


class Worker:
    """An application in a process of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self._out, self._err = folder / "worker.out", folder / "worker.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-c", WORKER],
                env={**os.environ, "TERN_URL": url},
                stdout=out,
                stderr=err,
            )

    def said(self) -> list[str]:
        return self._out.read_text(encoding="utf-8").splitlines()

    def logged(self) -> str:
        return self._err.read_text(encoding="utf-8")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


async def test_an_app_that_starts_first_waits_says_so_once_and_works(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """F7, F10: hooks run in order, around and before the first message."""
    node = node_factory(start=False)
    worker = Worker(tmp_path, node.url)
    try:
        wait_until(lambda: "app waits for its servers" in worker.logged())
        assert worker.said() == ["lifespan begins"]
        node.start()
        wait_until(lambda: "prepared prepared" in worker.said())
        async with ternmq.connect(node.url, app="shop") as mq:
            await mq.send("orders", b"o-1")
        wait_until(lambda: "billed o-1" in worker.said())
        assert worker.stop() == 0
    finally:
        worker.process.kill()
    assert worker.said()[0] == "lifespan begins"
    assert worker.said()[-3:] == ["tidied shop", "lifespan ends", "over"]
    assert worker.logged().count("app waits for its servers") == 1
    assert "Traceback" not in worker.logged()


def test_an_app_that_waits_ends_at_a_signal(tmp_path: Path, node_factory: NodeFactory) -> None:
    """F7."""
    worker = Worker(tmp_path, node_factory(start=False).url)
    try:
        wait_until(lambda: "app waits for its servers" in worker.logged())
        assert worker.stop() == 0
    finally:
        worker.process.kill()
    assert worker.said() == ["lifespan begins", "lifespan ends", "over"]
    assert "Traceback" not in worker.logged()


async def test_a_lazy_client_and_its_outbox_need_no_broker_to_begin(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """F7, Q9: requests are answered, and what was committed goes out when the servers come."""
    node = node_factory(start=False)
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}")
    settings = RelaySettings(poll=0.05)
    async with ternmq.connect(node.url, app="shop", lazy=True) as mq:
        outbox = Outbox(engine, mq, settings=settings)
        await outbox.create_tables()
        async with outbox:
            async with AsyncSession(engine) as session, session.begin():
                await outbox.send(session, "orders", b"o-1")
            sending = asyncio.create_task(mq.send("orders", b"o-2"))
            await asyncio.to_thread(node.start)
            assert (await sending).topic == "orders"
            await until(lambda: outbox.counts.sent == 1)
            bodies = [message.body async for message in mq.read("orders")]
    await engine.dispose()
    assert sorted(bodies) == [b"o-1", b"o-2"]


async def test_connecting_waits_as_long_as_it_was_told(node_factory: NodeFactory) -> None:
    """F7: by default not at all."""
    node = node_factory(start=False)
    with pytest.raises(ternmq.Unavailable):
        await ternmq.connect(node.url)
    with pytest.raises(ternmq.Unavailable):
        await ternmq.connect(node.url, wait=0.1)
    connecting = asyncio.create_task(ternmq.connect(node.url, wait=60)._start())
    await asyncio.to_thread(node.start)
    mq = await connecting
    assert mq.broker_groups() == ["main"]
    await mq.close()


def test_the_blocking_client_is_lazy_too(node_factory: NodeFactory) -> None:
    node = node_factory(start=False)
    with ternmq.sync.connect(node.url, lazy=True) as mq:
        mq.send_nowait("orders", b"o-1")
        node.start()
        mq.flush()
        assert [message.body for message in mq.read("orders")] == [b"o-1"]
