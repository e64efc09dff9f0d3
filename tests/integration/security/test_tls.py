"""TLS on real processes: a node, a cluster, new certificates under load, and `tern secure`."""

import asyncio
import os
import signal
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.core.errors import TernError
from ternmq.discovery.url import with_tls_files
from ternmq.security.tls.node_name import NodeName
from tests.integration.processes import Node, NodeFactory, tern
from tests.tls_files import TlsFiles
from tests.waiting import until, wait_until

SWAPS = 6


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path / "ca")


def url_of(node: Node, files: TlsFiles, client: str = "") -> str:
    """As a client of that node writes it."""
    shown = {"cert": f"{client}.pem", "key": f"{client}-key.pem"} if client else {}
    named = {name: str(files.folder / file) for name, file in shown.items()}
    return with_tls_files(f"terns://127.0.0.1:{node.port}", {"ca": str(files.ca), **named})


def test_from_secure_init_to_the_first_message(node_factory: NodeFactory, tmp_path: Path) -> None:
    """What is printed is all there is to write: `docs/security.md`, five minutes."""
    folder = tmp_path / "secure"
    config = tmp_path / "tern.toml"
    config.write_text(tern("secure", "init", str(folder)).out)
    node = node_factory(arguments=["--config", str(config)])
    admin = {"ca": "ca.pem", "cert": "admin.pem", "key": "admin-key.pem"}
    url = with_tls_files(
        f"terns://127.0.0.1:{node.port}",
        {name: str(folder / file) for name, file in admin.items()},
    )
    tern("send", "hello", "my first message", url=url)
    got = tern("consume", "hello", "--group", "me", "--count", "1", url=url)

    assert "my first message" in got.out
    assert node.stdout_text() == f"ready terns://127.0.0.1:{node.port}\n"
    assert stat.S_IMODE((folder / "node-key.pem").stat().st_mode) == 0o600
    refused = tern("secure", "init", str(folder), code=None)
    assert refused.code and "not replaced" in refused.err
    plain = tern("topic", "list", url=node.url, code=2)
    assert "use terns://" in plain.err
    bare = f"terns://127.0.0.1:{node.port}?ca={folder / 'ca.pem'}"
    assert "wants to know who comes" in tern("topic", "list", url=bare, code=None).err
    assert tern("doctor", url=url).code == 0
    assert tern("doctor", "--from-client", url=url).code == 0


def test_a_key_that_others_may_read_does_not_start(
    node_factory: NodeFactory, files: TlsFiles
) -> None:
    key = files.server().key
    assert key is not None
    key.chmod(0o644)
    node = node_factory(environment=files.settings(), start=False)
    node.launch()

    assert node.process.wait(20) == 2
    assert "chmod 600" in node.stderr_text()


async def test_certificates_change_under_load_without_an_error(
    node_factory: NodeFactory, files: TlsFiles
) -> None:
    """Clients that stay, and clients that come all the time, while the files are swapped."""
    files.server()
    files.client("app")
    environment = {**files.settings(), "TERN_TLS_CLIENT_CERTIFICATES": "required"}
    node = node_factory(environment=environment)
    url = url_of(node, files, "app")
    async with loaded(url) as load:
        for swap in range(SWAPS):
            files.server(replace=True)
            os.kill(node.pid, signal.SIGHUP)
            await until(lambda done=swap + 1: node.stderr_text().count("new TLS files") == done)  # type: ignore[misc]
            before = load.connected
            await until(lambda at=before: load.connected > at + 2)  # type: ignore[misc]
    assert load.errors == []
    assert load.sent == load.got
    assert len(load.sent) > SWAPS


class Load:
    """What was sent, what came, and everything that went wrong."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.got: set[bytes] = set()
        self.connected = 0
        self.errors: list[TernError] = []
        self.stop = asyncio.Event()


@asynccontextmanager
async def loaded(url: str) -> AsyncIterator[Load]:
    load = Load()
    async with ternmq.connect(url, app="load") as mq:
        await mq.admin.create_topic("swapped")
        consumer = mq.consumer("swapped", group="g", start="earliest")

        async def send() -> None:
            number = 0
            while not load.stop.is_set():
                body = b"%d" % (number := number + 1)
                await mq.send("swapped", body)
                load.sent.add(body)

        async def come() -> None:
            while not load.stop.is_set():
                async with ternmq.connect(url, app="visitor") as visitor:
                    body = b"visitor %d" % load.connected
                    await visitor.send("swapped", body)
                    load.sent.add(body)
                load.connected += 1

        async def consume() -> None:
            async with consumer:
                async for message in consumer:
                    load.got.add(message.body)
                    message.ack()

        async def noting(work: Any) -> None:
            try:
                await work()
            except TernError as error:
                load.errors.append(error)

        consuming = asyncio.create_task(noting(consume))
        sending = [asyncio.create_task(noting(work)) for work in (send, come)]
        yield load
        load.stop.set()
        await asyncio.gather(*sending)
        await until(lambda: load.got == load.sent or load.errors)
        consuming.cancel()
        await asyncio.wait([consuming])


def test_a_bad_file_is_told_and_the_old_certificate_stays(
    node_factory: NodeFactory, files: TlsFiles
) -> None:
    files.server()
    node = node_factory(environment={**files.settings(), "TERN_TLS_RELOAD_MS": "100"})
    assert "certificate is not for" not in node.stderr_text()
    url = url_of(node, files)
    (files.folder / "node.pem").write_text("half a certif")
    wait_until(lambda: "not used" in node.stderr_text())

    with ternmq.sync.connect(f"terns://127.0.0.1:{node.port}", tls_ca=files.ca) as mq:
        mq.send("hello", b"still here")
    report = tern("doctor", url=url, code=1)
    assert "its new files are not used" in report.out
    files.server(replace=True)
    wait_until(lambda: "new TLS files are used" in node.stderr_text())
    assert tern("doctor", url=url).code == 0


def test_a_cluster_of_processes_is_known_by_its_certificates(
    node_factory: NodeFactory, files: TlsFiles, tmp_path: Path
) -> None:
    """No node secret anywhere: meta, two brokers of a group, a delay server, each its own."""
    files.server("meta", nodes=[NodeName("shop", "meta")])
    files.server("east", nodes=[NodeName("shop", "realtime", "east")])
    files.server("later", nodes=[NodeName("shop", "delay", "later")])
    nothing = {"TERN_NODE_SECRET_FILE": ""}
    meta = node_factory.meta_server(
        f"sqlite:///{tmp_path / 'registry.db'}", environment={**files.settings("meta"), **nothing}
    )
    where = f"terns://127.0.0.1:{meta.port}"
    for _ in range(2):
        node_factory.broker_server(where, "east", environment={**files.settings("east"), **nothing})
    delays = node_factory.delay_server(
        meta, "later", environment={**files.settings("later"), **nothing}, start=False
    )
    delays.meta = where
    delays.start()
    url = url_of(meta, files)

    def in_step() -> bool:
        rows = tern("broker", "list", "--json", url=url).json()
        return len(rows) == 2 and all(row["in_sync"] and row["state"] == "ok" for row in rows)

    wait_until(in_step)
    tern("send", "orders", "one", "--delay", "100ms", url=url)
    got = tern("consume", "orders", "--group", "g", "--count", "1", "--create", url=url)
    assert "one" in got.out

    wrong = node_factory.broker_server(
        where, "west", environment={**files.settings("east"), **nothing}, start=False
    )
    wrong.launch()
    assert wrong.process.wait(30) == 2
    assert "is for tern://shop/realtime/east, and this server is" in wrong.stderr_text()
    clear = node_factory.broker_server(f"tern://127.0.0.1:{meta.port}", "clear", start=False)
    clear.launch()
    assert clear.process.wait(30) == 2
    assert "use terns://" in clear.stderr_text()
    with sqlite3.connect(tmp_path / "registry.db") as registry:
        assert "west" not in "".join(registry.iterdump())
