"""The spool: accepted is sent, in order, once, whoever dies in between (D6)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ternmq.batch.encoder import Outgoing
from ternmq.client.spool.spool import Spool
from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadRequest, BufferFull, Closed, TernError, TooLarge, Unavailable
from ternmq.core.units import MIB
from tests.unit.outbox.fake_client import FakeMq
from tests.waiting import until


class Broker(FakeMq):
    """The fake, as a spool sees it."""

    async def find_groups(self) -> list[str]:
        if not self.groups:
            raise Unavailable("nobody is there")
        return self.groups


@pytest.fixture
def broker() -> Iterator[Broker]:
    fake = Broker()
    yield fake
    fake.close()


@asynccontextmanager
async def spool(folder: Path, broker: Broker, size_max: int = MIB) -> AsyncIterator[Spool]:
    told: list[TernError] = []
    made = Spool(
        folder,
        broker,
        size_max=size_max,
        clock=SystemClock(),
        on_error=lambda topic, error: told.append(error),
    )
    made.told = told  # type: ignore[attr-defined]
    try:
        yield made
    finally:
        await made.close(0.2)


def message(body: bytes, order_key: str | None = None) -> Outgoing:
    return Outgoing(body=body, order_key=order_key, born_at_ms=1)


async def test_messages_are_sent_in_order_and_receipts_come_back(
    tmp_path: Path, broker: Broker
) -> None:
    async with spool(tmp_path, broker) as made:
        waiting = [made.put("t", message(b"%d" % number), waits=True) for number in range(50)]
        receipts = [await one.future for one in waiting if one.future is not None]
        await made.flush()

    assert broker.bodies == [b"%d" % number for number in range(50)]
    assert len({receipt.id for receipt in receipts}) == 50
    assert [row.explicit_id for _, _, row in broker.stored] == [one.entry.id for one in waiting]


async def test_the_next_start_sends_what_was_left(tmp_path: Path, broker: Broker) -> None:
    """The first process never reached anybody."""
    broker.groups = []
    async with spool(tmp_path, broker) as made:
        for number in range(20):
            made.put("t", message(b"%d" % number), waits=False)
    assert broker.bodies == []

    broker.groups = ["main"]
    async with spool(tmp_path, broker) as made:
        await made.flush()
    assert broker.bodies == [b"%d" % number for number in range(20)]
    async with spool(tmp_path, broker) as made:
        assert len(made) == 0


async def test_a_message_that_arrived_unanswered_is_not_stored_twice(
    tmp_path: Path, broker: Broker
) -> None:
    """Also not when the broker groups have changed meanwhile: it goes to its first one."""
    original = broker.send_once
    broker.groups = ["a"]

    async def no_answer(*arguments: object, **named: object) -> list[object]:
        await original(*arguments, **named)  # type: ignore[arg-type]
        raise Unavailable("the answer got lost")

    broker.send_once = no_answer  # type: ignore[method-assign,assignment]
    async with spool(tmp_path, broker) as made:
        made.put("t", message(b"1"), waits=False)
        await until(lambda: bool(broker.calls))
    broker.send_once = original  # type: ignore[method-assign]
    broker.groups = ["b"]
    async with spool(tmp_path, broker) as made:
        await made.flush()

    assert [(group, row.body) for group, _, row in broker.stored] == [("a", b"1")]


async def test_a_refused_message_is_told_and_holds_up_nobody(
    tmp_path: Path, broker: Broker
) -> None:
    broker.refuse = lambda group, row: TooLarge("too large") if row.body == b"bad" else None
    async with spool(tmp_path, broker) as made:
        made.put("t", message(b"bad"), waits=False)
        bad = made.put("t", message(b"bad"), waits=True)
        good = made.put("t", message(b"good"), waits=True)
        assert good.future is not None
        assert bad.future is not None
        await good.future
        with pytest.raises(TooLarge):
            await bad.future
        await made.flush()
        assert [type(error) for error in made.told] == [TooLarge]  # type: ignore[attr-defined]
    assert broker.bodies == [b"good"]


async def test_an_order_key_waits_for_its_first(tmp_path: Path, broker: Broker) -> None:
    away = True
    broker.refuse = lambda group, row: Unavailable("away") if away else None
    async with spool(tmp_path, broker) as made:
        for number in range(4):
            made.put("t", message(b"%d" % number, order_key="k"), waits=False)
        await until(lambda: bool(broker.calls))
        away = False
        await made.flush()
    assert broker.bodies == [b"0", b"1", b"2", b"3"]


async def test_a_full_spool_is_waited_for_or_refused(tmp_path: Path, broker: Broker) -> None:
    broker.groups = []
    async with spool(tmp_path, broker, size_max=2_000) as made:
        made.put("t", message(b"x" * 1_500), waits=False)
        with pytest.raises(BufferFull):
            made.put("t", message(b"x" * 1_500), waits=False)
        with pytest.raises(BufferFull):
            await made.put_patiently("t", message(b"x" * 1_500), timeout=0.05, waits=True)
        waits = asyncio.create_task(
            made.put_patiently("t", message(b"y" * 1_500), timeout=20, waits=True)
        )
        await asyncio.sleep(0)
        broker.groups = ["main"]
        waiting = await waits
        assert waiting.future is not None
        await waiting.future


async def test_closing_tells_who_waits(tmp_path: Path, broker: Broker) -> None:
    broker.groups = []
    async with spool(tmp_path, broker) as made:
        waiting = made.put("t", message(b"1"), waits=True)
        with pytest.raises(BadRequest, match="for later"):
            made.put("t", Outgoing(body=b"", due_at_ms=1), waits=True)
    assert waiting.future is not None
    with pytest.raises(Closed, match="goes out at the next start"):
        await waiting.future
    with pytest.raises(Closed):
        made.put("t", message(b"2"), waits=True)
