"""One-way messages that nobody answers: sent again, stored once, given up, told (D3)."""

import asyncio

import ternmq
from ternmq.core.errors import TernError
from ternmq.rpc.server import Peer
from ternmq.wire.frame import Frame
from ternmq.wire.numbers import Command
from tests.unit.client.fake_broker import FakeBroker
from tests.waiting import until


async def test_a_one_way_message_is_sent_again_a_few_times_then_the_caller_is_told(
    broker: FakeBroker,
) -> None:
    """D3: three times, some seconds apart; the same bytes, so that it could be stored only once."""
    told: list[tuple[str, TernError]] = []
    broker.behave(Command.PUBLISH, lambda peer, frame: True)
    async with ternmq.connect(
        broker.url,
        resend_times=3,
        resend_after=0.2,
        request_timeout=2,
        on_error=lambda *args: told.append(args),
    ) as mq:
        mq.send_nowait("log", b"x")
        await mq.flush()

        assert mq.stats().unknown == 1
        assert mq.stats().repeats == len(broker.published) - 1

    assert 3 <= len(broker.published) <= 4  # The last one may be due at the very end.
    assert len(set(broker.published)) == 1
    assert [(topic, error.code) for topic, error in told] == [("log", "send_unknown")]


async def test_a_one_way_message_whose_answer_was_lost_is_stored_once(broker: FakeBroker) -> None:
    """D3: the server recognises resent messages."""
    lost = 0

    def lose_answers(peer: Peer, frame: Frame) -> bool:
        nonlocal lost
        lost += 1
        if lost <= 2:
            broker.store(frame.payload)
            return True
        return False

    broker.behave(Command.PUBLISH, lose_answers)
    async with ternmq.connect(broker.url, resend_after=0.15) as mq:
        mq.send_nowait("log", b"x")
        await mq.flush()
        assert mq.stats().sent == 1

    assert len(broker.published) == 3
    assert len(broker.batches["log"]) == 1


async def test_who_waits_for_a_receipt_does_not_wait_for_the_resend_window(
    broker: FakeBroker,
) -> None:
    """A batch that one `send` waits for is repeated after `request_timeout`."""
    broker.behave(Command.PUBLISH, lambda peer, frame: len(broker.published) < 2)
    async with ternmq.connect(
        broker.url, request_timeout=0.1, resend_after=3600, delivery_timeout=5
    ) as mq:
        mq.send_nowait("log", b"one way")
        await asyncio.wait_for(mq.send("log", b"waited for"), 20)


async def test_closing_does_not_wait_for_the_whole_resend_window(broker: FakeBroker) -> None:
    broker.behave(Command.PUBLISH, lambda peer, frame: True)
    told: list[tuple[str, TernError]] = []
    async with ternmq.connect(
        broker.url, delivery_timeout=0.1, on_error=lambda *args: told.append(args)
    ) as mq:
        mq.send_nowait("log", b"x")
        await until(lambda: broker.published)

    assert [error.code for _, error in told] == ["send_unknown"]
