"""Reading with bytes from a replica that does not catch up."""

import asyncio

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
