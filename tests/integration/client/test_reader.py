"""Reading with bytes from a replica that does not catch up."""

import asyncio
from typing import Any

import pytest

import ternmq
from ternmq.client.reading.range_reader import Page, RangeReader
from ternmq.testing import node


async def test_a_replica_that_does_not_catch_up_is_left_for_the_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = RangeReader.read

    async def behind(self: RangeReader, sequence: int, end: int) -> Page:
        """What has to come from a replica ends at 2, however long one waits."""
        if not self._stalls:
            return await read(self, sequence, end)
        return await read(self, sequence, 2) if sequence < 2 else Page([], sequence)

    monkeypatch.setattr(RangeReader, "read", behind)
    async with node() as url, ternmq.connect(url, app="test") as mq:
        for number in range(5):
            await mq.send("orders", b"%d" % number)
        async with asyncio.timeout(20):
            found = [message.body async for message in mq.read("orders", from_="replica")]

    assert found == [b"0", b"1", b"2", b"3", b"4"]


async def test_reads_and_broadcasts_take_the_filters_of_consumers() -> None:
    async with node() as url, ternmq.connect(url, app="test") as mq:
        for number in range(6):
            tag = "odd" if number % 2 else "even"
            await mq.send("orders", b"%d" % number, tag=tag, properties={"amount": number})

        async def read(**options: Any) -> list[bytes]:
            return [message.body async for message in mq.read("orders", **options)]

        assert await read(tag="odd") == [b"1", b"3", b"5"]
        assert await read(filter="amount > 3") == [b"4", b"5"]
        assert await read(tag="even", filter="amount > 3", start=1) == [b"4"]
        async with mq.broadcast("orders", tag="odd") as every:
            await mq.send_many("orders", [b"6", b"8"], tag="even")
            await mq.send("orders", b"7", tag="odd")
            assert (await anext(aiter(every))).body == b"7"
        for wrong in ({"filter": "amount >"}, {"tag": ["odd"]}, {"group": "g", "start": 0}):
            with pytest.raises(ternmq.TernError):
                await read(**wrong)
        with pytest.raises(ternmq.BadFilter):
            mq.broadcast("orders", filter="amount >")


async def test_a_reader_begins_where_a_group_stands() -> None:
    async with node() as url, ternmq.connect(url, app="test") as mq:
        await mq.send_many("orders", [b"%d" % number for number in range(6)])
        async with mq.consumer("orders", group="g") as consumer:
            taken = [await anext(consumer) for _ in range(6)]
            await taken[0].ack()
            await taken[2].ack()

        left = [message.body async for message in mq.read("orders", group="g")]
        assert left == [b"1", b"3", b"4", b"5"]
        with pytest.raises(ternmq.GroupNotFound, match="tern group create"):
            [message async for message in mq.read("orders", group="nobody")]
