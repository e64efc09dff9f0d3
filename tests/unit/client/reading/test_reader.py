"""`read`: by sequence, to an end or on and on, without a group."""

import asyncio
from datetime import UTC, datetime

import pytest

import ternmq
from ternmq.batch.encoder import Origin, encode_messages
from ternmq.core.errors import BadRequest, TopicNotFound
from ternmq.core.ids import ProducerId
from ternmq.wire.messages.groups import Start
from ternmq.wire.numbers import Command
from tests.unit.client.fake_broker import FakeBroker
from tests.waiting import until


async def test_reading_goes_to_what_is_there_now(broker: FakeBroker) -> None:
    async with ternmq.connect(broker.url, batch_rows_max=4) as mq:
        await mq.send_many("orders", [b"%d" % at for at in range(10)])

        assert [message.body async for message in mq.read("orders")] == [
            b"%d" % at for at in range(10)
        ]
        assert [message.sequence async for message in mq.read("orders", start=3, end=6)] == [
            3,
            4,
            5,
        ]
        assert [len(batch) async for batch in mq.read("orders", start=2).batches()] == [2, 4, 2]
        assert [message async for message in mq.read("orders", start="latest")] == []
    assert broker.joins == []


async def test_following_goes_on_with_what_comes(broker: FakeBroker, mq: ternmq.Client) -> None:
    seen: list[bytes] = []

    async def follow() -> None:
        async for message in mq.read("orders", follow=True):
            seen.append(message.body)  # noqa: PERF401 - one at a time, as they come

    await mq.send("orders", b"before")
    following = asyncio.create_task(follow())
    await until(lambda: seen == [b"before"])
    await mq.send("orders", b"after")
    await until(lambda: seen == [b"before", b"after"])
    following.cancel()
    await asyncio.wait([following])


async def test_read_messages_belong_to_nobody(mq: ternmq.Client) -> None:
    await mq.send("orders", b"x")
    [message] = [message async for message in mq.read("orders")]

    for settle in (message.ack, message.retry, message.reject):
        with pytest.raises(BadRequest, match="belong to nobody"):
            settle()


async def test_reading_survives_a_cut_connection(broker: FakeBroker) -> None:
    async with ternmq.connect(broker.url, batch_rows_max=2) as mq:
        await mq.send_many("orders", [b"%d" % at for at in range(6)])
        seen = []
        async for message in mq.read("orders"):
            seen.append(message.body)
            if len(seen) == 2:
                broker.cut_all()

    assert seen == [b"%d" % at for at in range(6)]


async def test_an_end_and_follow_exclude_each_other(mq: ternmq.Client) -> None:
    with pytest.raises(BadRequest, match="not both"):
        mq.read("orders", end=5, follow=True)
    with pytest.raises(BadRequest, match="did you mean 'follow'"):
        mq.read("orders", folow=True)  # type: ignore[call-arg]


@pytest.mark.parametrize("start", [2**64, 2**63, -1, 10**5000], ids=["2**64", "2**63", "-1", "big"])
async def test_a_start_beyond_every_sequence_is_refused(mq: ternmq.Client, start: int) -> None:
    with pytest.raises(BadRequest, match=r"start is .*; a sequence or a time is 0 to 2\*\*63 - 1"):
        mq.read("orders", start=start)
    with pytest.raises(BadRequest, match=r"start is .*; a sequence or a time is 0 to 2\*\*63 - 1"):
        mq.consumer("orders", group="billing", start=start)
    with pytest.raises(BadRequest, match=r"value is .*; a sequence or a time is 0 to 2\*\*63 - 1"):
        await mq.admin.seek("orders", Start(at="sequence", value=start))


async def test_the_dead_letters_of_a_group_that_has_none_are_no_topic_to_create(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    advice = "create it with 'tern topic create'"
    broker.refuse(Command.SEEK, TopicNotFound(advice))

    with pytest.raises(TopicNotFound) as read:
        [message async for message in mq.read("%dead.billing")]
    with pytest.raises(TopicNotFound) as sought:
        await mq.admin.seek("%dead.billing", Start(at="latest"))
    with pytest.raises(TopicNotFound, match=advice):
        [message async for message in mq.read("orders")]

    assert str(read.value) == str(sought.value) == "group 'billing' has no dead letters"


async def test_a_stored_time_that_no_calendar_has_can_be_read(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    """Another client may have written anything."""
    messages = [ternmq.Outgoing(body=b"", born_at_ms=at) for at in (10**17, -(10**17), 0)]
    origin = Origin(topic="orders", app="odd", producer=ProducerId(1, 1))
    broker.store(encode_messages(messages, origin=origin, first_sequence=0))

    late, early, usual = [message.born_at async for message in mq.read("orders")]
    assert late == datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)
    assert early == datetime(1, 1, 1, tzinfo=UTC)
    assert usual == datetime(1970, 1, 1, tzinfo=UTC)
