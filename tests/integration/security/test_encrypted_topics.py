"""Encrypted topics from end to end, on a real node: what is stored, who reads it, what is erased.

Issue 14, part 4.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import ternmq
from ternmq.security.access.secret import read_secret
from ternmq.security.private_files import write_new
from ternmq.security.sealing.data_key import DataKey
from ternmq.security.sealing.master_keys import new_key_text
from ternmq.testing.node import node
from ternmq.wire.messages.topics import TopicKeyFind, TopicKeys, TopicSettings
from ternmq.wire.numbers import Command
from tests.waiting import until

CANARY = b"canary-4711-plain-body"
SEALED = TopicSettings(master_key="shop")


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.key"
    write_new(path, new_key_text().encode() + b"\n")
    return path


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[tuple[str, Path]]:
    """A url and the data directory behind it."""
    data = tmp_path / "data"
    async with node(data_dir=data) as url:
        async with ternmq.connect(url) as mq:
            await mq.admin.create_topic("orders", SEALED)
        yield url, data


def with_key(url: str, key_file: Path, **options: Any) -> ternmq.Client:
    return ternmq.connect(url, keys={"shop": f"file:{key_file}"}, **options)


def on_disk(data: Path, needle: bytes) -> list[Path]:
    return [path for path in data.rglob("*") if path.is_file() and needle in path.read_bytes()]


async def take(mq: ternmq.Client, count: int, group: str = "g") -> list[Any]:
    found = []
    async with mq.consumer("orders", group=group, start="earliest") as consumer:
        async for message in consumer:
            found.append((message.key, message.body))
            await message.ack()
            if len(found) == count:
                return found
    raise AssertionError


async def test_bodies_are_read_by_who_has_the_key_and_lie_nowhere_in_plain(
    place: tuple[str, Path], key_file: Path
) -> None:
    url, data = place
    big = CANARY * 5_000
    async with with_key(url, key_file) as mq:
        await mq.send("orders", CANARY, key="one")
        await mq.send_many("orders", [CANARY + b"%d" % at for at in range(300)])
        await mq.send("orders", big, key="big", order_key="k")
        await mq.send("orders", CANARY, delay=0.2, key="later")
        await mq.send_once("orders", [ternmq.Outgoing(body=CANARY, explicit_id=b"mine")])
        mq.transaction_checker(lambda check: ternmq.Verdict.COMMIT)
        async with mq.transaction() as tx:
            await tx.send("orders", CANARY, key="half")
            await tx.send_many("orders", [CANARY, CANARY])
        found = await take(mq, 307)
        assert {body[: len(CANARY)] for _, body in found} == {CANARY}
        assert ("big", big) in found
        assert {"one", "later", "half"} <= {key for key, _ in found}
        read = [message.body async for message in mq.read("orders")]
        assert sorted(read) == sorted(body for _, body in found)
        [one] = await mq.find(key="one")
        assert one.message.body == CANARY
    assert not on_disk(data, CANARY[:16])
    assert on_disk(data, b"orders")


async def test_without_the_key_sending_is_refused_and_consuming_goes_on(
    place: tuple[str, Path], key_file: Path
) -> None:
    url, _ = place
    async with with_key(url, key_file) as mq, ternmq.connect(url) as stranger:
        with pytest.raises(ternmq.KeyNotFound, match=r"no master key 'shop'.*TERN_KEYS"):
            await stranger.send("orders", b"x")
        await mq.send("orders", CANARY)
        await mq.admin.create_topic("plain")
        await mq.send("plain", b"goes on")
        await mq.admin.create_group("orders", "g", start="earliest")
        await mq.admin.set_group("orders", "g", attempts_max=2, retry="fixed:10ms")
        shown: list[bytes] = []
        consumer = await stranger.consumer(["orders", "plain"], group="g", start="earliest").start()
        consuming = asyncio.create_task(show(consumer, shown))
        await until(lambda: dead(mq))
        await consumer.close()
        await consuming
        assert shown == [b"goes on"]
        [message] = [message async for message in stranger.read("orders")]
        with pytest.raises(ternmq.KeyNotFound, match="no master key 'shop'"):
            _ = message.body
        assert not message.erased
        [letter] = [message async for message in mq.read("%dead.g")]
        assert letter.body == CANARY  # Not lost: it is there for who has the key.
        assert "no master key 'shop'" in str(letter.properties["%reason"])
        await mq.admin.resend_dead_letters("g", await mq.admin.open_dead_letters("g"))
        assert await take(mq, 1) == [(None, CANARY)]


async def show(consumer: ternmq.Consumer, shown: list[bytes]) -> None:
    async for message in consumer:
        shown.append(message.body)
        await message.ack()


async def dead(mq: ternmq.Client) -> bool:
    try:
        return bool([message async for message in mq.read("%dead.g")])
    except ternmq.TopicNotFound:
        return False


async def test_an_erased_subject_is_unreadable_everywhere_and_others_are_not(
    place: tuple[str, Path], key_file: Path
) -> None:
    url, _ = place
    async with with_key(url, key_file) as mq:
        for at in range(3):
            await mq.send("orders", b"about 17", subject="customer-17", key=f"a{at}")
            await mq.send("orders", b"about 18", subject="customer-18", key=f"b{at}")
        assert await mq.admin.erase("customer-17") == ["orders"]
        assert await mq.admin.erase("customer-17") == []
    async with with_key(url, key_file) as mq:
        assert [body for _, body in await take(mq, 3)] == [b"about 18"] * 3
        messages = [message async for message in mq.read("orders")]
        assert [message.erased for message in messages] == [True, False] * 3
        assert messages[0].key == "a0"
        with pytest.raises(ternmq.Erased, match="erased"):
            _ = messages[0].body
        [ledger] = await mq.admin.ledger("orders", "g")
        assert (ledger.acked, ledger.total) == (6, 6)  # What was erased is settled, not stuck.
        # A new message about it has a new key.
        await mq.send("orders", b"came back", subject="customer-17")
        assert [m.body async for m in mq.read("orders") if not m.erased][-1] == b"came back"


async def test_a_subject_needs_an_encrypted_topic(place: tuple[str, Path], key_file: Path) -> None:
    url, _ = place
    async with with_key(url, key_file) as mq:
        with pytest.raises(ternmq.BadRequest, match="--master-key"):
            await mq.send("plain", b"x", subject="customer-17")


async def test_a_topic_that_becomes_encrypted_takes_nothing_plain(
    place: tuple[str, Path], key_file: Path
) -> None:
    url, _ = place
    async with with_key(url, key_file) as mq:
        await mq.send("late", b"plain")
        await mq.admin.set_topic("late", master_key="shop")
        async with asyncio.timeout(20):
            while True:
                try:
                    await mq.send("late", b"sealed")
                    break
                except ternmq.BadRequest as error:
                    assert "encrypted bodies only" in error.message
        assert [m.body async for m in mq.read("late")] == [b"plain", b"sealed"]


async def test_an_unreadable_body_is_a_dead_letter_and_the_consumer_goes_on(
    place: tuple[str, Path], key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = place
    encrypt = DataKey.encrypt

    def tampered(self: DataKey, body: bytes, *rest: Any) -> tuple[bytes, bytes]:
        cipher, seal = encrypt(self, body, *rest)
        return (cipher[:-1] + bytes([cipher[-1] ^ 1]) if body == b"bad" else cipher), seal

    monkeypatch.setattr(DataKey, "encrypt", tampered)
    async with with_key(url, key_file) as mq:
        await mq.send_many("orders", [b"good", b"bad", b"better"])
        assert [body for _, body in await take(mq, 2)] == [b"good", b"better"]
        await until(lambda: dead(mq))
        [letter] = [message async for message in mq.read("%dead.g")]
        assert "does not open" in str(letter.properties["%reason"])
        with pytest.raises(ternmq.Corrupt):
            _ = letter.body


async def test_keys_are_told_to_who_may_use_the_topic(tmp_path: Path, key_file: Path) -> None:
    """Rights: publish makes and gets the key of now, read and subscribe find, manage erases."""
    async with node(data_dir=tmp_path / "data", security=True) as url:
        password = read_secret(tmp_path / "data" / "admin-password", "it").reveal()
        async with login(url, "admin", password, key_file) as admin:
            await admin.admin.create_topic("orders", SEALED)
            for user, action in (("writer", "publish"), ("reader", "read"), ("other", "describe")):
                await admin.admin.add_user(user, password="correct horse")
                await admin.admin.grant(user, action, "orders")
            async with login(url, "writer", "correct horse", key_file) as writer:
                await writer.send("orders", CANARY, subject="ada")
                with pytest.raises(ternmq.Unauthorized):
                    await writer.admin.erase("ada")
            async with login(url, "reader", "correct horse", key_file) as reader:
                [message] = [message async for message in reader.read("orders")]
                assert message.body == CANARY
                with pytest.raises(ternmq.TernError, match="may not"):
                    await reader.send("orders", CANARY)
            async with login(url, "other", "correct horse", key_file) as other:
                with pytest.raises(ternmq.Unauthorized):
                    asked = TopicKeyFind(topic="orders", ids=[1])
                    await other.cluster.ask_meta(Command.TOPIC_KEY_FIND, asked, TopicKeys)
            assert await admin.admin.erase("ada") == ["orders"]


def login(url: str, user: str, password: str, key_file: Path) -> ternmq.Client:
    return with_key(url.replace("tern://", f"tern://{user}@"), key_file, password=password)
