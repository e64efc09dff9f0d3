"""Erasing reaches every copy: delayed messages, dead letters, replicas, exports; keys rewrapped.

Issue 14, part 4. Spark and the archive are in `test_encrypted_rows.py`.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import ternmq
from ternmq.security.private_files import write_new
from ternmq.security.sealing.master_keys import new_key_text
from ternmq.testing.node import node
from ternmq.wire.messages.topics import TopicSettings
from tests.integration.processes import NodeFactory, Ran, tern
from tests.waiting import until

SEALED = TopicSettings(master_key="shop")


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.key"
    write_new(path, new_key_text().encode() + b"\n")
    return path


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    async with node(data_dir=tmp_path / "data") as address:
        async with ternmq.connect(address) as mq:
            await mq.admin.create_topic("orders", SEALED)
        yield address


def with_key(url: str, key_file: Path, **options: Any) -> ternmq.Client:
    return ternmq.connect(url, keys={"shop": f"file:{key_file}"}, **options)


async def read(mq: ternmq.Client, topic: str = "orders", **options: Any) -> list[bytes | None]:
    """Bodies; None: erased."""
    found = [message async for message in mq.read(topic, **options)]
    return [None if message.erased else message.body for message in found]


async def test_what_is_for_later_is_erased_before_it_is_due(url: str, key_file: Path) -> None:
    async with with_key(url, key_file) as mq:
        await mq.send("orders", b"about 17", subject="17", delay=0.6)
        await mq.send("orders", b"about 18", subject="18", delay=0.6)
        assert await mq.admin.erase("17") == ["orders"]
    async with with_key(url, key_file) as mq:

        async def both() -> bool:
            return len(await read(mq)) == 2

        await until(both)
        assert sorted(str(body) for body in await read(mq)) == ["None", str(b"about 18")]


async def test_a_dead_letter_is_erased_with_its_subject(url: str, key_file: Path) -> None:
    async with with_key(url, key_file) as mq:
        await mq.send("orders", b"about 17", subject="17")
        await mq.send("orders", b"about 18", subject="18")
        async with mq.consumer("orders", group="g", start="earliest") as consumer:
            for _ in range(2):
                await (await anext(consumer)).reject("no")
        assert await read(mq, "%dead.g") == [b"about 17", b"about 18"]
        await mq.admin.erase("17")
    async with with_key(url, key_file) as mq:
        assert await read(mq, "%dead.g") == [None, b"about 18"]
        await mq.admin.resend_dead_letters("g", await mq.admin.open_dead_letters("g"))
        async with asyncio.timeout(20), mq.consumer("orders", group="g") as consumer:
            message = await anext(consumer)
            assert message.body == b"about 18"
            await message.ack()


async def test_a_replica_has_no_more_of_it_than_the_master(
    node_factory: NodeFactory, key_file: Path
) -> None:
    cluster = node_factory.cluster("--groups", "1", "--replicas", "1")
    async with with_key(cluster.url, key_file) as mq:
        await mq.admin.create_topic("orders", SEALED)
        await mq.send("orders", b"canary-about-17", subject="17")
        await mq.send("orders", b"about 18", subject="18")

        async def copied() -> bool:
            return await read(mq, from_="replica") == [b"canary-about-17", b"about 18"]

        await until(copied)
        await mq.admin.erase("17")
    async with with_key(cluster.url, key_file) as mq:
        assert await read(mq, from_="replica") == [None, b"about 18"]
    files = [path for path in cluster.data_dir.rglob("*") if path.is_file()]
    assert not [path for path in files if b"canary-about" in path.read_bytes()]


async def cli(*words: str, url: str, key_file: Path, stdin: bytes = b"") -> Ran:
    return await asyncio.to_thread(tern, *words, url=url, stdin=stdin, keys=f"shop=file:{key_file}")


async def test_an_export_is_plain_leaves_out_what_is_erased_and_an_import_encrypts_again(
    url: str, key_file: Path, tmp_path: Path
) -> None:
    async with with_key(url, key_file) as mq:
        await mq.send("orders", b"canary-about-17", subject="17")
        await mq.send("orders", b"canary-about-18", subject="18", key="k")
        await mq.admin.erase("17")
    exported = await cli("export", "orders", url=url, key_file=key_file)
    assert "1 erased messages are left out" in exported.err

    async with node(data_dir=tmp_path / "other") as other:
        async with ternmq.connect(other) as mq:
            await mq.admin.create_topic("orders", SEALED)
        await cli("import", url=other, key_file=key_file, stdin=exported.out.encode())
        async with with_key(other, key_file) as mq:
            assert await read(mq) == [b"canary-about-18"]
    files = [path for path in (tmp_path / "other").rglob("*") if path.is_file()]
    assert not [path for path in files if b"canary-about" in path.read_bytes()]


async def test_keys_are_wrapped_by_another_master_key_and_the_old_one_is_not_needed(
    url: str, key_file: Path, tmp_path: Path
) -> None:
    new_file = tmp_path / "new.key"
    write_new(new_file, new_key_text().encode() + b"\n")
    async with with_key(url, key_file) as mq:
        await mq.send("orders", b"of a period")
        await mq.send("orders", b"about 17", subject="17")
        await mq.send("orders", b"about 18", subject="18")
        await mq.admin.erase("18")
        with pytest.raises(ternmq.KeyNotFound, match="next"):
            await mq.admin.rewrap_keys("orders", "next")
        await mq.admin.set_topic("orders", master_key="next")
    both = f"shop=file:{key_file},next=file:{new_file}"
    words = ("key", "rewrap", "orders", "--master-key", "next", "--json")
    first = await asyncio.to_thread(tern, *words, url=url, keys=both)
    again = await asyncio.to_thread(tern, *words, url=url, keys=both)
    assert (first.json()["rewrapped"], again.json()["rewrapped"]) == (2, 0)

    async with ternmq.connect(url, keys={"next": f"file:{new_file}"}) as mq:
        assert await read(mq) == [b"of a period", b"about 17", None]
        await mq.send("orders", b"more about 17", subject="17")
        assert (await read(mq))[-1] == b"more about 17"
        assert {key.master_key for key in await mq.admin.topic_keys("orders")} == {"next"}
        assert await mq.admin.erase("17") == ["orders"]
    async with ternmq.connect(url, keys={"next": f"file:{new_file}"}) as mq:
        assert await read(mq) == [b"of a period", None, None, None]
