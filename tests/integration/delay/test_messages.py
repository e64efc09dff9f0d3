"""What a message carries through its delay, what is refused, and choosing at the command line."""

import asyncio
import random
from datetime import UTC, datetime, timedelta

import pytest

import ternmq
from ternmq import CancelResult
from tests.integration.delay.test_delays import arrived, settled
from tests.integration.processes import Node, tern

MIB = 1 << 20


async def taken(mq: ternmq.Client, topic: str, count: int) -> list[ternmq.Message]:
    got: list[ternmq.Message] = []
    async with asyncio.timeout(30), mq.consumer(topic, group="g") as consumer:
        async for message in consumer:
            got.append(message)
            message.ack()
            if len(got) == count:
                break
    return got


async def test_bodies_of_all_sizes_and_kinds_come_as_they_were_sent(shared_node: Node) -> None:
    """Q7: up to the largest message, compressed and plain ones of two producers side by side. The
    ancestor said SUCCESS to one that was too large, and dropped it (qmq.md 9.1, 3)."""
    topic, url = "delay.sizes", shared_node.url
    noise = random.Random(1)
    largest = noise.randbytes(4 * MIB - 65 * 1024)
    bodies = [b"", b"x", b"text " * 5_000, noise.randbytes(70_000), bytes(2 * MIB), largest]
    due = datetime.now(UTC) + timedelta(seconds=1)
    async with (
        ternmq.connect(url, compression="zstd") as packed,
        ternmq.connect(url, compression="none") as plain,
    ):
        for number, body in enumerate(bodies):
            for mq in (packed, plain):
                await mq.send(topic, body, at=due, key=str(number))
        with pytest.raises(ternmq.TooLarge, match="at most"):
            await plain.send(topic, noise.randbytes(4 * MIB - 30 * 1024), at=due)
        rows = [noise.randbytes(4 * MIB - 30 * 1024), b"small"]
        sent = await plain.send_many(topic, rows, at=due)
        ((failed, reason),) = sent.failures
        assert list(failed) == [0]
        assert isinstance(reason, ternmq.TooLarge)

        got = await taken(plain, topic, 2 * len(bodies) + 1)
        await settled(plain, topic, (13, 0, 13, 0))

    found = sorted((int(message.key), message.body) for message in got if message.key)
    assert found == sorted((at, body) for at, body in enumerate(bodies) for _ in range(2))


async def test_an_ordered_group_sees_due_order_and_each_order_key_in_it(shared_node: Node) -> None:
    """Sent in reverse: what is due first comes first, also within one batch of the broker."""
    topic = "delay.ordered"
    async with ternmq.connect(shared_node.url) as mq:
        start_ms = int(datetime.now(UTC).timestamp() * 1000) + 1_000
        rows = [
            ternmq.Outgoing(
                body=b"%d" % at,
                order_key=f"k{at % 3}",
                due_at_ms=start_ms + 150 * at,
                tag="a",
                properties={"at": at},
                priority=at,
            )
            for at in reversed(range(12))
        ]
        assert not (await mq.send_many(topic, rows)).failures
        got: list[int] = []
        ordered = mq.consumer(topic, group="g", ordered=True)
        async with asyncio.timeout(30), ordered as consumer:
            async for message in consumer:
                got.append(int(message.body))
                assert (message.tag, message.priority) == ("a", int(message.body))
                assert message.properties == {"at": int(message.body)}
                message.ack()
                if len(got) == 12:
                    break
    assert got == list(range(12))


async def test_what_does_not_go_with_a_delay_says_so(shared_node: Node) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    async with ternmq.connect(shared_node.url) as mq:
        with pytest.raises(ternmq.BadRequest, match="not consumed yet"):
            await mq.send("t", b"x", at=due, confirm_group="g")
        for at in (datetime(2027, 1, 1), "2027-01-01", 5):
            with pytest.raises(ternmq.BadRequest, match="time zone"):
                await mq.send("t", b"x", at=at)  # type: ignore[arg-type]
        with pytest.raises(ternmq.BadRequest, match="not both"):
            await mq.send("t", b"x", at=due, delay=1)
        receipt = await mq.send("delay.row", b"x", at=due)
        (row,) = await mq.admin.delays.rows(topic="delay.row")
        assert await mq.reschedule(row, delay=7200) is CancelResult.RESCHEDULED
        with pytest.raises(ternmq.BadRequest, match="731 days"):
            await mq.reschedule(row, delay=timedelta(days=800))
        with pytest.raises(ternmq.BadRequest, match="to when"):
            await mq.reschedule(row)
        assert await mq.fire_now(row) is CancelResult.FIRED
        assert await arrived(mq, "delay.row", 1) == ["x"]
        assert await mq.fire_now(receipt) is CancelResult.ALREADY_DISPATCHED


def test_the_command_line_chooses_by_key_topic_and_hour(shared_node: Node) -> None:
    url, topic = shared_node.url, "delay.choose"
    with ternmq.sync.connect(url) as mq:
        for hour in (17, 18):
            at = datetime(2027, 12, 23, hour, 5, tzinfo=UTC)
            mq.send_many(topic, [b"a", b"b", b"c"], at=at)
        mq.send(topic, b"k", at=datetime(2027, 12, 23, 19, tzinfo=UTC), key="delay.k")
    assert [tern("delay", "find", "--key", "delay.k", "--json", url=url).json()[0]["key"]] == [
        "delay.k"
    ]
    choice = ["--topic", topic, "--hour", "2027-12-23T17:30"]
    dry = tern("delay", "cancel", *choice, "--dry-run", "--json", url=url).json()
    assert [row["due_at"] for row in dry] == ["2027-12-23T17:05:00.000Z"] * 3
    done = tern("delay", "cancel", *choice, "--yes", url=url)
    assert done.out == "3 chosen, 3 cancelled, 0 not\n"
    later = ["--delay", "1h", "--key", "delay.k", "--topic", topic, "--yes"]
    assert "rescheduled" in tern("delay", "reschedule", *later, url=url).out
    fired = tern("delay", "fire", "--topic", topic, "--from", "2027-12-23T18", "--yes", url=url)
    assert fired.out == "3 chosen, 3 fired, 0 not\n"
    with ternmq.sync.connect(url) as mq:
        (line,) = mq.admin.delays.ledger(topic)
        assert (line.accepted, line.cancelled) == (7, 3)
