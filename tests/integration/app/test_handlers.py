"""App handlers on real processes: blocked threads, crashes inside a batch, draining, broadcasts."""

import asyncio
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest

import ternmq
from tests.integration.processes import Node, NodeFactory, clean_environment, tern
from tests.waiting import until, wait_until

SERVICE = """
import asyncio, os, pathlib, sys, threading, time
import ternmq

app = ternmq.App(os.environ["TERN_URL"], app="shop", drain_timeout={drain})
notes = pathlib.Path(sys.argv[1])

def note(text):
    with notes.open("a") as file:
        file.write(text + "\\n")

{handler}
app.run()
note("ended")
"""


class Service:
    """A program with an `App`, and what its handlers noted."""

    def __init__(self, node: Node, notes: Path, handler: str, *, drain: float = 30) -> None:
        self.notes = notes
        notes.touch()
        code = SERVICE.format(handler=handler, drain=drain)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(notes)],
            env=clean_environment({"TERN_URL": node.url}),
            stdout=subprocess.DEVNULL,
        )

    def noted(self) -> list[str]:
        return self.notes.read_text(encoding="utf-8").splitlines()

    def wait_for(self, count: int, seconds: float = 20) -> None:
        wait_until(lambda: len(self.noted()) >= count, f"{count} notes", seconds=seconds)

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)


def ledger(node: Node, topic: str, group: str = "billing") -> dict[str, int]:
    with ternmq.sync.connect(node.url, app="test") as mq:
        [line] = mq.admin.ledger(topic, group)
        return msgspec.structs.asdict(line)


def short_leases(node_factory: NodeFactory) -> Node:
    return node_factory(
        environment={"TERN_LEASE_MS": "500", "TERN_SESSION_GRACE_MS": "500"},
    )


def test_a_handler_may_block_its_thread_for_many_leases(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Q14: the lease is half a second, the handler takes three; nobody else gets the message."""
    node = short_leases(node_factory)
    tern("send", "orders", "slow", url=node.url)
    service = Service(
        node,
        tmp_path / "notes",
        """
@app.subscriber("orders", group="billing")
def bill(message):
    note(f"began {message.attempt}")
    time.sleep(3)
    note("done")
""",
    )
    with ternmq.sync.connect(node.url, app="thief") as mq:
        try:
            service.wait_for(1)
            with mq.consumer("orders", group="billing"):  # Would take it as soon as it is free.
                service.wait_for(2)
                wait_until(lambda: ledger(node, "orders")["acked"] == 1, "the ack")
        finally:
            service.end()

    assert service.noted() == ["began 1", "done"]


def test_a_consumer_killed_inside_a_batch_handler_loses_nothing(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """D11: what is not acked comes again, to whoever is there."""
    node = short_leases(node_factory)
    tern("send", "orders", "--count", "10", "x", url=node.url)
    handler = """
@app.subscriber("orders", group="billing", batch=True, batch_size=4, concurrency=2)
def bill(batch):
    note(" ".join(str(message.sequence) for message in batch))
    {then}
"""
    killed = Service(node, tmp_path / "killed", handler.format(then="time.sleep(60)"))
    killed.wait_for(2)
    killed.signal(signal.SIGKILL)
    killed.end()

    heir = Service(node, tmp_path / "heir", handler.format(then="pass"))
    try:
        wait_until(lambda: ledger(node, "orders")["acked"] == 10, "all acks", seconds=20)
    finally:
        heir.end()

    assert all(len(line.split()) <= 4 for line in heir.noted())
    handled = sorted(int(number) for line in heir.noted() for number in line.split())
    assert handled == list(range(10))


def test_sigterm_finishes_what_runs_and_gives_the_rest_back(node: Node, tmp_path: Path) -> None:
    """Running handlers are acked, what was only fetched is ready for others, the exit code is 0."""
    tern("send", "orders", "--count", "20", "x", url=node.url)
    service = Service(
        node,
        tmp_path / "notes",
        """
@app.subscriber("orders", group="billing", concurrency=3)
def bill(message):
    note("began")
    while not (notes.parent / "go").exists():
        time.sleep(0.01)
    note("finished")
""",
    )
    try:
        service.wait_for(3)
        service.signal(signal.SIGTERM)
        # What was only fetched is there for others while the handlers go on.
        wait_until(lambda: ledger(node, "orders")["ready"] == 17, "rows given back", seconds=20)
        assert ledger(node, "orders")["in_flight"] == 3
        (tmp_path / "go").touch()
        assert service.process.wait(20) == 0
    finally:
        service.end()

    noted = service.noted()
    assert (noted.count("began"), noted.count("finished"), noted[-1]) == (3, 3, "ended")
    line = ledger(node, "orders")
    assert (line["acked"], line["ready"], line["in_flight"]) == (3, 17, 0)


def test_handlers_that_hang_are_cut_off_after_the_drain_time_or_by_a_second_signal(
    node: Node, tmp_path: Path
) -> None:
    handler = """
@app.subscriber("orders", group="billing")
def bill(message):
    note("began")
    time.sleep(600)

@app.subscriber("orders", group="audit")
async def audit(message):
    note("began")
    await asyncio.sleep(600)
"""
    tern("send", "orders", "x", url=node.url)
    for drain, signals in ((0.2, 1), (3600.0, 2)):
        service = Service(node, tmp_path / f"notes-{signals}", handler, drain=drain)
        try:
            service.wait_for(2)
            service.signal(signal.SIGTERM)
            if signals == 2:
                service.signal(signal.SIGINT)
            assert service.process.wait(20) == 0
        finally:
            service.end()
        for group in ("billing", "audit"):
            line = ledger(node, "orders", group)
            assert (line["ready"], line["in_flight"], line["acked"]) == (1, 0, 0)


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
