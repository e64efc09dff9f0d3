"""Bad peers against a real node over raw sockets: each costs itself its connection and others
nothing; memory stays bounded whatever they send (J15, D8)."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard
from crc32c import crc32c

import ternmq
from ternmq.batch import compression
from ternmq.batch.encoder import Origin, encode_bodies
from ternmq.batch.layout import BODY_SIZE_MAX, COUNT, PRODUCER, PRODUCER_CRC_AT, ROWS_MAX
from ternmq.core.ids import ProducerId
from ternmq.core.units import MIB
from ternmq.rpc.limits import ServerLimits
from ternmq.wire.frame import HEADER
from ternmq.wire.messages.publish import PUBLISHED, PUBLISHED_DUPLICATE
from ternmq.wire.messages.read import Read
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack
from tests.integration.processes import Node
from tests.integration.verifiable_clients import whole_topic
from tests.unit.rpc.peers import RawClient, a_frame, hello_frame

FRAME = HEADER.pack


def raw(node: Node, *, port: int = 1) -> RawClient:
    """A socket to the broker (port 1) or the meta server (port 0)."""
    address: Any = SimpleNamespace(address=("127.0.0.1", node.port + port))
    return RawClient(address)


def memory(node: Node) -> int:
    """Resident bytes of the node."""
    for line in Path(f"/proc/{node.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def a_batch(topic: str, bodies: list[bytes], *, random_id: int = 7, first: int = 0) -> bytes:
    producer = ProducerId(1_700_000_000_000, random_id)
    origin = Origin(topic=topic, app="shop", producer=producer)
    return bytes(
        encode_bodies(bodies, origin=origin, first_sequence=first, born_at_ms=1_700_000_000_000)
    )


@asynccontextmanager
async def others_keep_their_pace(node: Node) -> AsyncIterator[list[float]]:
    """An honest client sends all the while, and none of its calls takes long; yields how long each
    took so far."""
    topic = "honest"
    took: list[float] = []
    stop = asyncio.Event()

    async def go_on(mq: ternmq.Client) -> None:
        while not stop.is_set():
            began = time.monotonic()
            await mq.send(topic, b"still here")
            took.append(time.monotonic() - began)
            await asyncio.sleep(0.005)

    async with ternmq.connect(node.url, request_timeout=30) as mq:
        await mq.send(topic, b"first")
        task = asyncio.create_task(go_on(mq))
        try:
            yield took
        finally:
            stop.set()
            await task
    assert max(took) < 8, f"an honest client waited {max(took):.1f} s"


RNG = random.Random(11)
BAD = {
    "garbage": RNG.randbytes(200),
    "a web browser": b"GET / HTTP/1.1\r\nHost: tern\r\n\r\n",
    "an oversized length": FRAME(2**32 - 1, Command.HELLO, 0, 1),
    "no hello": a_frame(Command.PING, correlation=1),
    "a bad hello": a_frame(Command.HELLO, b"\xff" * 40, correlation=1),
    "a large hello": FRAME(1 * MIB, Command.HELLO, 0, 1),
    "oversized after hello": hello_frame() + FRAME(64 * MIB, Command.PUBLISH, 0, 2),
    "an unknown command": hello_frame() + a_frame(999, correlation=2),
    "unknown flags": hello_frame() + a_frame(Command.PING, correlation=2, flags=64),
    "garbage after hello": hello_frame() + RNG.randbytes(200),
    "a batch of garbage": hello_frame()
    + a_frame(Command.PUBLISH, RNG.randbytes(4000), correlation=2),
    "msgpack garbage": hello_frame() + a_frame(Command.JOIN, b"\xc1" * 9, correlation=2),
    "an answer": hello_frame() + a_frame(Command.PING, correlation=2, flags=1),
    "a frame twice": hello_frame() + 2 * a_frame(Command.PING, correlation=2),
}


NOT_FOR_META = ("a batch of garbage", "msgpack garbage")


@pytest.mark.parametrize("port", [0, 1])
async def test_every_kind_of_nonsense_closes_its_connection_with_a_reason(
    port: int, shared_node: Node
) -> None:
    """J15: an ERROR frame that says why; the next client is served as ever."""
    async with others_keep_their_pace(shared_node):
        for what, data in BAD.items():
            if port == 0 and what in NOT_FOR_META:
                continue
            async with raw(shared_node, port=port) as peer:
                peer.send(data)
                reason = await peer.reason()
                assert isinstance(reason, ternmq.TernError), what
                assert len(str(reason)) > 10, what
    assert shared_node.running


@pytest.mark.long
async def test_half_a_hello_and_then_silence_is_given_up(shared_node: Node) -> None:
    """A socket that was opened and forgotten does not stay for ever."""
    async with AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(raw(shared_node)) for _ in range(20)]
        for peer in silent[:10]:
            peer.send(hello_frame()[:11])
        async with others_keep_their_pace(shared_node):
            reasons = [await peer.reason() for peer in silent]
    assert all("HELLO" in str(reason) for reason in reasons)


async def test_a_frame_that_comes_twice_is_stored_once(shared_node: Node) -> None:
    """D3: the same frame again is refused; the same batch in a new frame gets the first receipt."""
    topic = "twice"
    batch = a_batch(topic, [b"only", b"once"])
    async with raw(shared_node) as peer:
        await peer.greet()
        peer.send(a_frame(Command.PUBLISH, batch, correlation=2))
        first = PUBLISHED.unpack((await peer.frame()).payload)
        peer.send(a_frame(Command.PUBLISH, batch, correlation=3))
        second = PUBLISHED.unpack((await peer.frame()).payload)
        assert second == (*first[:4], first[4] | PUBLISHED_DUPLICATE)
        peer.send(a_frame(Command.PUBLISH, batch, correlation=3))
        assert "came twice" in str(await peer.reason())
    async with raw(shared_node) as peer:  # Somebody else who repeats it, as after a reconnect.
        await peer.greet()
        peer.send(a_frame(Command.PUBLISH, batch, correlation=2))
        assert PUBLISHED.unpack((await peer.frame()).payload) == second
    async with ternmq.connect(shared_node.url) as mq:
        assert list((await whole_topic(mq, topic)).values()) == ["only", "once"]


def bombs() -> dict[str, bytes]:
    size = 256 * MIB
    told = zstandard.ZstdCompressor(level=1).compress(bytes(size))
    secret = zstandard.ZstdCompressor(level=1, write_content_size=False).compressobj()
    silent = b"".join(secret.compress(bytes(MIB)) for _ in range(256)) + secret.flush()
    return {"with its size": told, "without its size": silent}


@pytest.mark.parametrize("kind", ["with its size", "without its size"])
async def test_a_zip_bomb_hurts_neither_node_nor_consumer(
    kind: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checksum and claims are in order, the content is 256 MiB instead of 1,000 bytes: the node
    never unpacks it, a consumer makes it a dead letter and goes on."""
    bomb = bombs()[kind]
    with monkeypatch.context() as patch:
        patch.setattr(compression, "compress_one", lambda data, encoding: bomb)
        patch.setattr(compression, "WORTH_IT", 1e9)
        batch = a_batch("bombs", [bytes(1000)])
    before = memory(node)
    async with raw(node) as peer:
        await peer.greet()
        peer.send(a_frame(Command.PUBLISH, batch, correlation=2))
        assert PUBLISHED.unpack((await peer.frame()).payload)[3] == 1
    async with ternmq.connect(node.url) as mq:
        await mq.send("bombs", b"harmless")
        async with asyncio.timeout(20), mq.consumer("bombs", group="g") as consumer:
            good = await anext(consumer)
            assert good.body == b"harmless"
            await consumer.flush()
        (letter,) = [message async for message in mq.read("%dead.g")]
        assert "claims another size" in str(letter.properties["%damaged"])
        assert "cannot be read" in str(letter.properties["%reason"])
    assert memory(node) - before < 64 * MIB


@pytest.mark.parametrize(
    ("field", "value"),
    [(2, 0), (2, ROWS_MAX + 1), (2, 101), (3, BODY_SIZE_MAX + 1), (3, 7), (12, 60_000)],
)
async def test_a_batch_with_false_claims_and_a_good_checksum_is_refused(
    field: int, value: int, shared_node: Node
) -> None:
    """Counts and sizes that do not fit what is there would be memory or crashes later."""
    batch = bytearray(a_batch("claims", [b"x"] * 100, random_id=8))
    fields = list(PRODUCER.unpack_from(batch, PRODUCER_CRC_AT))
    fields[field] = value
    PRODUCER.pack_into(batch, PRODUCER_CRC_AT, *fields)
    COUNT.pack_into(batch, PRODUCER_CRC_AT, crc32c(batch[PRODUCER_CRC_AT + 4 :]))
    async with raw(shared_node) as peer:
        await peer.greet()
        peer.send(a_frame(Command.PUBLISH, bytes(batch), correlation=2))
        assert isinstance(await peer.reason(), ternmq.TernError)
    async with ternmq.connect(shared_node.url) as mq:
        assert await mq.admin.topics("claims") == []


async def test_clients_that_ask_and_never_read_take_bounded_memory(node: Node) -> None:
    """J15: 200 connections with a hundred requests for 3 MiB each in the pipe."""
    async with ternmq.connect(node.url, compression="none") as mq:
        for _ in range(70):
            await mq.send_many("big", [bytes(1000)] * 1000)
    read = pack(Read(topic="big", sequence=0, rows_max=50_000, size_max=3 * MIB, wait_ms=0, end=0))
    flood = b"".join(a_frame(Command.READ, read, correlation=2 + at) for at in range(100))
    before = memory(node)
    most = 0
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(raw(node)) for _ in range(200)]
        async with asyncio.timeout(60), others_keep_their_pace(node) as took:
            for peer in peers:
                peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
                peer.send(hello_frame() + flood)
            deadline = time.monotonic() + 4
            while time.monotonic() < deadline or len(took) <= 10:
                most = max(most, memory(node))
                await asyncio.sleep(0.05)
    # Between two sweeps each may pass the mark by one answer; unbounded it would be 60 GB.
    assert most - before < len(peers) * (ServerLimits().write_high + 3 * MIB)
    async with ternmq.connect(node.url) as mq:
        assert len(await whole_topic(mq, "honest")) > 10


async def test_large_frames_that_never_end_take_bounded_memory(node: Node) -> None:
    """J15: 100 connections that each begin a frame of 8 MiB and send all but its end."""
    before = memory(node)
    most = 0
    begun = FRAME(8 * MIB, Command.PUBLISH, 0, 2) + bytes(7 * MIB)
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(raw(node)) for _ in range(100)]
        async with others_keep_their_pace(node):
            for peer in peers:
                peer.send(hello_frame() + begun)
            deadline = time.monotonic() + 3
            while time.monotonic() < deadline:
                most = max(most, memory(node))
                await asyncio.sleep(0.05)
    assert most - before < 450 * MIB
