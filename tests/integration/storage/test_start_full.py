"""A server that starts on a disk without a free byte: it serves what it has (R14, chaos O1)."""

import os
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

import ternmq
from tests.integration.delay.test_delays import arrived
from tests.integration.faults import needs_root
from tests.integration.processes import Node, NodeFactory
from tests.integration.storage.test_disk_faults import take, until_sending_works
from tests.integration.storage.test_full_disk import small_disk
from tests.waiting import until

TOPIC = "orders"
BODY = bytes(1000)
SETTINGS = {"TERN_SEGMENT_SIZE": "8MiB", "TERN_DISK_FREE_MIN": "0"}


def stuff(place: Path) -> Path:
    """Not one block is left."""
    ballast = place / "ballast"
    for size in (1 << 20, 4096, 1):
        with ballast.open("ab", buffering=0) as file:
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    assert os.statvfs(place).f_bavail == 0
    return ballast


def on(place: Path, server: Node) -> Node:
    server.data_dir = place / "data"
    server.start()
    return server


async def serve_while_full(url: str, kept: int) -> int:
    """What is there is read and consumed, sending is refused; how many are there then."""
    async with ternmq.connect(url, compression="none", delivery_timeout=1) as mq:
        found = [message async for message in mq.read(TOPIC, start="earliest")]
        assert len(found) == kept
        assert len(await take(mq, "steady", 10)) == 10
        # What a start gives back of its log's last file is there to be used.
        with pytest.raises(ternmq.DiskFull, match=r"free some space|no space left"):
            while True:
                await mq.send(TOPIC, BODY)
                kept += 1
    return kept


@needs_root
@pytest.mark.parametrize("kind", ["ext4", pytest.param("tmpfs", marks=pytest.mark.long)])
async def test_a_broker_starts_with_a_full_disk_and_takes_messages_when_there_is_room(
    kind: str, tmp_path: Path, node_factory: NodeFactory
) -> None:
    meta = node_factory.meta_server(f"sqlite:///{tmp_path / 'registry.db'}")
    with small_disk(tmp_path, kind) as place:
        broker = on(
            place,
            node_factory.broker_server(meta.url, "east", environment=SETTINGS, start=False),
        )
        async with ternmq.connect(meta.url, compression="none") as mq:
            await mq.send_many(TOPIC, [BODY] * 100)
            assert len(await take(mq, "steady", 10)) == 10
        ballast, kept = stuff(place), 100
        for stop in (broker.kill, broker.stop):
            stop()
            broker.start()
            kept = await serve_while_full(meta.url, kept)
        async with ternmq.connect(meta.url) as mq:
            ballast.unlink()
            await until_sending_works(mq)
        assert broker.stop() == 0


@needs_root
async def test_a_delay_server_starts_with_a_full_disk_and_its_messages_come(
    tmp_path: Path, node_factory: NodeFactory
) -> None:
    meta = node_factory.meta_server(f"sqlite:///{tmp_path / 'registry.db'}")
    node_factory.broker_server(meta.url, "east")
    with small_disk(tmp_path, "ext4") as place:
        delay = on(place, node_factory.delay_server(meta, environment=SETTINGS, start=False))
        due = datetime.now(UTC) + timedelta(seconds=3)
        async with ternmq.connect(meta.url, compression="none") as mq:
            await mq.send_many(TOPIC, [BODY] * 100, at=due)
        ballast = stuff(place)
        delay.kill()
        delay.start()
        async with ternmq.connect(meta.url, compression="none", delivery_timeout=1) as mq:
            with pytest.raises(ternmq.DiskFull):
                while True:
                    await mq.send(TOPIC, BODY, at=due + timedelta(hours=1))
            ballast.unlink()
            await until(partial(mq.send, TOPIC, BODY, at=due), ignoring=ternmq.DiskFull)
            assert len(await arrived(mq, TOPIC, 101, seconds=20)) == 101
        assert delay.stop() == 0


@needs_root
@pytest.mark.parametrize("kind", ["ext4", pytest.param("tmpfs", marks=pytest.mark.long)])
async def test_a_whole_node_starts_with_a_full_disk_and_its_registry_too(
    kind: str, tmp_path: Path, node_factory: NodeFactory
) -> None:
    with small_disk(tmp_path, kind) as place:
        node = on(place, node_factory(environment=SETTINGS, start=False))
        async with ternmq.connect(node.url, compression="none") as mq:
            await mq.send_many(TOPIC, [BODY] * 100)
            assert len(await take(mq, "steady", 10)) == 10
        ballast, kept = stuff(place), 100
        for stop in (node.kill, node.stop, node.kill, node.stop):
            stop()
            node.start()
            kept = await serve_while_full(node.url, kept)
        async with ternmq.connect(node.url) as mq:
            ballast.unlink()
            await until_sending_works(mq)
            await mq.admin.create_topic("after")
        assert node.stop() == 0
