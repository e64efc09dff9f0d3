"""What became of messages: kept until told, and said when it could not be."""

import asyncio

import pytest
from structlog.testing import capture_logs

import ternmq
from ternmq.client.consuming import ack_sender
from ternmq.client.consuming.ack_sender import AckSender
from ternmq.client.model.delivery import Outcome
from ternmq.client.transport import answer_deadlines
from ternmq.core.errors import Unavailable
from ternmq.core.lifecycle import Background
from ternmq.rpc.connection import AnswerTaker
from tests.unit.client.consuming.test_consumer import done_ranges, take
from tests.unit.client.fake_broker import FakeBroker
from tests.waiting import until


async def test_a_reason_that_utf8_cannot_write_holds_up_nothing(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    await mq.send_many("orders", [b"x"] * 4)
    async with mq.consumer("orders", group="billing") as consumer:
        messages = await take(consumer, 4)
        messages[0].ack()
        messages[1].reject(reason="odd \ud800 letter")
        messages[2].retry(after=1, reason="\udfff")
        messages[3].ack()
        await consumer.flush()

    assert sorted(done_ranges(broker)) == [(1, 0, 1), (1, 3, 4)]
    assert [done.reason for done in broker.done if done.kind == "reject"] == [r"odd \ud800 letter"]
    assert [done.reason for done in broker.done if done.kind == "retry"] == [r"\udfff"]


async def test_what_could_not_be_told_is_kept_and_flush_does_not_say_it_was(
    broker: FakeBroker, mq: ternmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(record: object) -> bytes:
        raise ZeroDivisionError("nobody thought of this")

    await mq.send_many("orders", [b"x"] * 3)
    async with mq.consumer("orders", group="billing") as consumer:
        messages = await take(consumer, 3)
        monkeypatch.setattr(ack_sender, "pack", failing)
        messages[0].ack()
        messages[1].reject()
        with pytest.raises(ZeroDivisionError):
            await consumer.flush()
        monkeypatch.undo()
        await consumer.flush()

        assert done_ranges(broker) == [(1, 0, 1)]
        assert done_ranges(broker, "reject") == [(1, 1, 2)]


async def test_waiting_in_vain_leaves_nothing_behind(mq: ternmq.Client) -> None:
    async with mq.consumer("orders", group="billing") as consumer:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(consumer), 0.001)

        assert not consumer._waiters
        await mq.send("orders", b"x")
        assert (await take(consumer, 1))[0].body == b"x"


async def test_leaving_while_the_broker_is_away_says_that_acks_may_be_lost(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    await mq.send_many("orders", [b"x"] * 3)
    consumer = await mq.consumer("orders", group="billing").start()
    messages = await take(consumer, 3)
    broker.refusal = Unavailable("not now")
    broker.cut_all()
    await until(lambda: next(iter(consumer._subscriptions))._connection is None)
    for message in messages[:2]:
        message.ack()
    with capture_logs() as logs:
        await consumer.close()

    assert [entry["rows"] for entry in logs if "acks may be lost" in entry["event"]] == [2]
    broker.refusal = None


class Server:
    """A connection that keeps what it was asked and answers when the test says so."""

    def __init__(self) -> None:
        self.closed = False
        self.asked: list[AnswerTaker] = []

    def call_for(self, taker: AnswerTaker, command: object, payload: bytes) -> None:
        self.asked.append(taker)

    def cork(self) -> None:
        """Nothing is gathered here."""

    uncork = cork

    def cut(self) -> None:
        self.closed = True
        self.asked[-1].set_exception(Unavailable("nothing heard for 12 s"))


@pytest.mark.parametrize("kind", ["ack", "retry"])
async def test_what_a_dead_connection_did_not_answer_is_told_to_the_one_joined_meanwhile(
    kind: str,
) -> None:
    """A half-open connection is given up long after the consumer has joined another master. Nobody
    told the new one: leases of such rows are renewed, so they stayed in flight for ever."""
    old, new = Server(), Server()
    acks = AckSender("billing", Background("test", lambda error: None), timeout=5)
    acks.joined(old, 1)  # type: ignore[arg-type]
    acks.settled([(7, 0, 1)], Outcome(kind))  # type: ignore[arg-type]
    acks.send_now()
    acks.away()
    acks.joined(new, 2)  # type: ignore[arg-type]
    old.cut()

    await until(lambda: bool(new.asked))
    new.asked[-1].set_result(bytearray())
    acks.stop()


async def test_acks_on_a_pull_that_failed_are_told_to_the_one_joined_meanwhile() -> None:
    server = Server()
    acks = AckSender("billing", Background("test", lambda error: None), timeout=5)
    acks.settled([(7, 0, 1)], Outcome("ack"))
    done = acks.take_along()
    acks.send_now()  # Nothing is left to send: its timer is gone.
    acks.joined(server, 2)  # type: ignore[arg-type]
    acks.failed(done)

    await until(lambda: bool(server.asked))
    server.asked[-1].set_result(bytearray())
    acks.stop()


async def test_who_waits_for_an_answer_in_vain_is_told_in_time_and_the_answer_counts_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answer_deadlines, "SWEEP_S", 0.01)
    server = Server()
    acks = AckSender("billing", Background("test", lambda error: None), timeout=1.0)
    acks.joined(server, 1)  # type: ignore[arg-type]
    acks.settled([(7, 0, 1)], Outcome("ack"))

    with pytest.raises(Unavailable, match="did not confirm within 1 s"):
        await acks.flush()
    assert acks._sending
    server.asked[-1].set_result(bytearray())
    await acks.flush()

    assert not acks._sending and not acks.pending
    acks.stop()
