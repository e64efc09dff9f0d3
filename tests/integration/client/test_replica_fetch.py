"""Bytes that a master leaves out of its answers come from a replica, or from the master after all.

The node of these tests leaves everything out; its consumers find no replica and read from it.
"""

import asyncio
from collections.abc import Iterator

import pytest

import ternmq
from ternmq.client.reading.range_reader import Page, RangeReader
from ternmq.core.errors import Unavailable
from ternmq.testing import node
from tests.waiting import until

BODIES = [str(number).encode() for number in range(3_000)]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """What was read by READ; nothing is answered with its bytes unless the consumer wants that."""
    monkeypatch.setattr("ternmq.broker.role._cold_below", lambda *_: 2**62)
    seen: list[tuple[int, int]] = []
    read = RangeReader.read

    async def noted(self: RangeReader, sequence: int, end: int) -> Page:
        seen.append((sequence, end))
        return await read(self, sequence, end)

    monkeypatch.setattr(RangeReader, "read", noted)
    yield seen


async def consume(mq: ternmq.Client, count: int, *, retry_every: int = 0) -> list[bytes]:
    got: list[bytes] = []
    async with asyncio.timeout(30), mq.consumer("orders", group="g", prefetch=500) as consumer:
        async for message in consumer:
            if retry_every and message.sequence % retry_every == 0 and message.attempt < 3:
                message.retry(after=0.01, error=ValueError("not yet"))
                continue
            if retry_every and message.sequence % retry_every == 0:
                assert message.last_error is not None
                assert message.last_error.text == "not yet"
            message.ack()
            got.append(message.body)
            if len(got) == count:
                break
        await consumer.flush()
    return got


async def test_a_backlog_is_consumed_in_order_with_bytes_from_elsewhere(
    reads: list[tuple[int, int]],
) -> None:
    async with node(cold_reads="replica") as url, ternmq.connect(url, app="test") as mq:
        await mq.send_many("orders", BODIES)

        assert await consume(mq, len(BODIES)) == BODIES
        assert sum(end - first for first, end in reads) >= len(BODIES)
        [line] = await mq.admin.ledger(group="g")
        assert (line.acked, line.in_flight) == (len(BODIES), 0)


async def test_retries_count_their_attempts_and_say_why(reads: list[tuple[int, int]]) -> None:
    async with node(cold_reads="replica") as url, ternmq.connect(url, app="test") as mq:
        await mq.send_many("orders", BODIES[:500])

        got = await consume(mq, 500, retry_every=50)
        assert sorted(got, key=int) == BODIES[:500]
        assert reads


async def test_what_a_replica_does_not_give_comes_from_the_master(
    reads: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(self: RangeReader, sequence: int, end: int) -> Page:
        reads.append((sequence, end))
        raise Unavailable("gone")

    monkeypatch.setattr(RangeReader, "read", gone)
    async with node(cold_reads="replica") as url, ternmq.connect(url, app="test") as mq:
        await mq.send_many("orders", BODIES)

        got = await consume(mq, len(BODIES))
        assert len(got) == len(BODIES)
        assert set(got) == set(BODIES)
        assert 0 < len(reads) < 10, "it is not asked again at once"


async def test_a_message_whose_time_is_over_dies_as_ever(reads: list[tuple[int, int]]) -> None:
    async with node(cold_reads="replica") as url, ternmq.connect(url, app="test") as mq:
        await mq.send("orders", b"short", ttl=0.05)
        await mq.send("orders", b"long")
        await asyncio.sleep(0.1)

        async with asyncio.timeout(20), mq.consumer("orders", group="g") as consumer:
            message = await anext(consumer)
            message.ack()
            assert message.body == b"long"

            async def short_one_is_over() -> bool:
                [line] = await mq.admin.ledger(group="g")
                return line.dead + line.expired == 1

            await until(short_one_is_over)
        assert reads
