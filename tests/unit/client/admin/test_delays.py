"""Messages for later: where they go, what shares a request, what a change may be told."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ternmq
from ternmq.batch.check import check_incoming
from ternmq.batch.due import due_times
from ternmq.batch.encoder import Outgoing
from ternmq.batch.layout import Attribute
from ternmq.batch.view import BatchView
from ternmq.client.admin.delays import CancelResult, id_bytes
from ternmq.core.errors import BadRequest, Unavailable
from ternmq.rpc.server import Peer
from ternmq.wire.frame import Frame
from ternmq.wire.messages.delays import (
    DelayChange,
    DelayChanged,
    DelayCounts,
    DelayFind,
    DelayLedger,
    DelayLedgerLine,
    DelayRow,
    DelayRows,
)
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack, unpack
from tests.unit.client.fake_broker import FakeBroker

AT = datetime(2026, 12, 24, 17, tzinfo=UTC)
AT_MS = 1_798_131_600_000
STORED_MS = 1_700_000_000_000


@pytest.fixture
async def broker(broker: FakeBroker) -> FakeBroker:
    broker.delay_groups = ["later"]
    return broker


def views(broker: FakeBroker) -> list[BatchView]:
    return [BatchView(batch) for batch in broker.published]


async def test_a_delay_goes_to_the_delay_server_and_the_receipt_knows_when(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    """R7, Q7."""
    receipt = await mq.send("orders", b"close", delay=timedelta(minutes=30), key="o-1")

    [view] = views(broker)
    assert view.attributes & Attribute.RELATIVE
    assert due_times(view, 1000).tolist() == [1_801_000]
    assert view.key(0) == "o-1"
    assert receipt.broker_group == "later"
    assert receipt.due_at == datetime.fromtimestamp(STORED_MS / 1000 + 1800, UTC)


async def test_a_time_is_sent_as_it_is(broker: FakeBroker, mq: ternmq.Client) -> None:
    receipt = await mq.send("orders", b"close", at=AT, priority=3, order_key="o", ttl=60)

    [view] = views(broker)
    assert due_times(view, 1000).tolist() == [AT_MS]
    assert (view.priority(0), view.order_key(0)) == (3, "o")
    assert view.expire_at_ms(0) == AT_MS + 60_000
    assert receipt.due_at == AT


async def test_a_message_for_now_has_no_due_time(broker: FakeBroker, mq: ternmq.Client) -> None:
    receipt = await mq.send("orders", b"now")

    assert receipt.due_at is None
    assert not check_incoming(bytearray(broker.published[0])).delayed


async def test_kinds_of_messages_never_share_a_batch(broker: FakeBroker, mq: ternmq.Client) -> None:
    await asyncio.gather(
        mq.send("orders", b"now"),
        mq.send("orders", b"later", delay=5),
        mq.send("orders", b"at", at=AT),
        mq.send("orders", b"later too", delay=6),
    )

    assert sorted(view.bodies() for view in views(broker)) == [
        [b"at"],
        [b"later", b"later too"],
        [b"now"],
    ]
    for batch in broker.published:
        check_incoming(bytearray(batch))


async def test_send_nowait_and_send_many_may_be_for_later(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    mq.send_nowait("orders", b"a", delay=1)
    await mq.flush()
    receipt = await mq.send_many("orders", [b"b", b"c"], at=AT)
    tagged = await mq.send_many("orders", [b"d", b"e"], delay=2, tag="vip")

    assert [view.bodies() for view in views(broker)] == [[b"a"], [b"b", b"c"], [b"d", b"e"]]
    assert [each.due_at for each in receipt] == [AT, AT]
    assert tagged[1].due_at == datetime.fromtimestamp(STORED_MS / 1000 + 2, UTC)


async def test_a_list_may_mix_them(broker: FakeBroker, mq: ternmq.Client) -> None:
    rows: list[Any] = [
        b"now",
        Outgoing(body=b"at", due_at_ms=AT_MS),
        Outgoing(body=b"at 2", due_at_ms=AT_MS + 1, explicit_id=b"\x01\x02"),
        Outgoing(body=b"after", delay_ms=7),
        b"now 2",
    ]
    receipt = await mq.send_many("orders", rows)

    bodies = sorted(view.bodies() for view in views(broker))
    assert bodies == [[b"after"], [b"at", b"at 2"], [b"now"], [b"now 2"]]
    assert [each.due_at_ms for each in receipt] == [
        None,
        AT_MS,
        AT_MS + 1,
        STORED_MS + 7,
        None,
    ]
    assert receipt[2].id == "0102"


async def test_a_row_too_far_ahead_does_not_take_its_neighbours_along(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    def limit(peer: Peer, frame: Frame) -> bool:
        if max(due_times(BatchView(frame.payload), 0)) > 100_000:
            error = BadRequest("at most 731 days ahead")
            peer.fail(frame.command, frame.correlation, error)
            return True
        return False

    broker.behave(Command.PUBLISH, limit)
    results = await asyncio.gather(
        *(mq.send("orders", b"x", delay=s) for s in (1, 2, 1000, 3)), return_exceptions=True
    )
    with pytest.raises(BadRequest, match="at most 731 days"):
        await mq.send_many("orders", [b"a"] * 1000, delay=1000)

    assert [isinstance(result, BadRequest) for result in results] == [False, False, True, False]
    refused = [view for view in views(broker) if view.count == 1000]
    assert len(refused) == 1, "rows that are all due at once are not tried one by one"


async def test_without_a_delay_server_the_error_says_what_to_start(broker: FakeBroker) -> None:
    broker.delay_groups = []
    async with ternmq.connect(broker.url, delivery_timeout=0.3) as mq:
        for send in (
            mq.send("orders", b"x", delay=5),
            mq.send_many("orders", [b"x"], at=AT),
            mq.cancel("0" * 26),
        ):
            with pytest.raises(Unavailable, match=r"`tern delay serve` runs one alone"):
                await send
        await mq.send("orders", b"now")


async def test_cancel_by_receipt_asks_its_server_with_a_hint(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    broker.delay_groups = ["another", "later"]
    receipt = await mq.send("orders", b"x", at=AT)

    assert await mq.cancel(receipt) is CancelResult.CANCELLED
    [change] = broker.changes
    assert change == DelayChange(
        action="cancel", id=id_bytes(receipt.id), topic="orders", due_at_ms=AT_MS
    )


async def test_a_message_that_was_not_for_later_is_with_its_broker(mq: ternmq.Client) -> None:
    for receipt in (await mq.send("orders", b"x"), await mq.send("orders", b"x", delay=0)):
        assert await mq.cancel(receipt) is CancelResult.ALREADY_DISPATCHED


async def test_reschedule_and_fire_say_what_they_want(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    for result in ("rescheduled", "rescheduled", "fired", "already_dispatched"):
        broker.behave(Command.DELAY_CHANGE, answering({"later": result}, broker))
        if result == "rescheduled":
            when: Any = {"at": AT} if not broker.changes else {"delay": 60}
            assert await mq.reschedule("0" * 26, **when) is CancelResult.RESCHEDULED
        else:
            assert await mq.fire_now(bytes(16)) is CancelResult(result)

    assert [(each.action, each.at_ms, each.after_ms) for each in broker.changes] == [
        ("reschedule", AT_MS, -1),
        ("reschedule", 0, 60_000),
        ("fire", 0, -1),
        ("fire", 0, -1),
    ]
    broker.behave(Command.DELAY_CHANGE, answering({"later": "rescheduled"}, broker))
    await mq.reschedule("0" * 26, at=datetime(1969, 7, 20, tzinfo=UTC))
    assert broker.changes[-1].at_ms == 1, "long past is at once, and is a time"
    with pytest.raises(BadRequest, match="reschedule to when"):
        await mq.reschedule("0" * 26)
    with pytest.raises(BadRequest, match="is not a message id"):
        await mq.cancel("order-7")
    with pytest.raises(
        BadRequest, match="message is 7; it can be a Receipt or a DelayRow or a text or bytes"
    ):
        await mq.cancel(7)  # type: ignore[arg-type]


def answering(results: dict[str, Any], broker: FakeBroker) -> Any:
    """Each group answers in its turn; None is silence. One listener plays them all."""
    waiting = list(results.values())

    def answer(peer: Peer, frame: Frame) -> bool:
        broker.changes.append(unpack(frame.payload, DelayChange))
        result = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if isinstance(result, ternmq.TernError):
            peer.fail(frame.command, frame.correlation, result)
        elif result is not None:
            peer.answer(frame.command, frame.correlation, pack(DelayChanged(result=result)))
        return True

    return answer


async def test_by_id_all_servers_are_asked_and_the_one_that_has_it_decides(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    broker.delay_groups = ["a", "b", "c"]
    results = {"a": "unknown", "b": "already_dispatched", "c": "unknown"}
    broker.behave(Command.DELAY_CHANGE, answering(results, broker))

    assert await mq.cancel("0" * 26) is CancelResult.ALREADY_DISPATCHED
    assert len(broker.changes) == 3


async def test_unknown_is_said_only_if_every_server_says_so(broker: FakeBroker) -> None:
    broker.delay_groups = ["a", "b"]
    async with ternmq.connect(broker.url, request_timeout=0.3) as mq:
        broker.behave(Command.DELAY_CHANGE, answering({"a": "unknown", "b": "unknown"}, broker))
        assert await mq.cancel("0" * 26) is CancelResult.UNKNOWN
        broker.behave(Command.DELAY_CHANGE, answering({"a": "unknown", "b": None}, broker))
        with pytest.raises(Unavailable, match=r"delay server '\w' does not answer"):
            await mq.cancel("0" * 26)
        broker.behave(Command.DELAY_CHANGE, answering({"a": None, "b": "cancelled"}, broker))
        assert await mq.cancel("0" * 26) is CancelResult.CANCELLED


async def test_a_server_that_does_not_run_may_have_it(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    broker.away_groups = ["resting"]
    broker.behave(Command.DELAY_CHANGE, answering({"later": "unknown"}, broker))
    with pytest.raises(Unavailable, match="'resting' is not running"):
        await mq.cancel("0" * 26)


async def test_without_fresh_routes_unknown_is_not_said(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    await mq.admin.routes()
    broker.behave(Command.DELAY_CHANGE, answering({"later": "unknown"}, broker))
    broker.refuse(Command.ROUTES, Unavailable("the meta server is gone"))
    with pytest.raises(Unavailable, match="there may be other delay servers"):
        await mq.cancel("0" * 26)
    broker.behave(Command.DELAY_CHANGE, answering({"later": "cancelled"}, broker))
    assert await mq.cancel("0" * 26) is CancelResult.CANCELLED


async def test_what_was_found_can_be_changed_with_a_hint(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    row = DelayRow(id=b"i", topic="t", key="", due_at_ms=77, accepted_at_ms=0, size=1)

    assert await mq.admin.delays.change("cancel", row) is CancelResult.CANCELLED
    assert broker.changes == [DelayChange(action="cancel", id=b"i", topic="t", due_at_ms=77)]


async def test_rows_are_read_page_by_page_and_sorted_over_all_servers(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    broker.delay_groups = ["a", "b"]
    asked: list[DelayFind] = []

    def find(peer: Peer, frame: Frame) -> bool:
        wanted = unpack(frame.payload, DelayFind)
        asked.append(wanted)
        at = int(wanted.after or b"0")
        rows = [
            DelayRow(
                id=b"%d" % due,
                topic="t",
                key="",
                due_at_ms=due,
                accepted_at_ms=0,
                size=1,
            )
            for due in range(at, min(at + 2, 5))
        ]
        page = DelayRows(rows=rows, next=b"%d" % (at + 2) if at + 2 < 5 else b"")
        peer.answer(frame.command, frame.correlation, pack(page))
        return True

    broker.behave(Command.DELAY_FIND, find)
    rows = await mq.admin.delays.rows(topic="t", start=AT, limit=7)

    assert [row.due_at_ms for row in rows] == [0, 0, 1, 1, 2, 2, 3]
    assert {(each.topic, each.from_ms) for each in asked} == {("t", AT_MS)}


async def test_counts_and_ledgers_of_all_servers_are_added_up(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    broker.delay_groups = ["a", "b"]

    def count(peer: Peer, frame: Frame) -> bool:
        counts = DelayCounts(hours=[(0, 5), (3_600_000, 1)], hour_ms=3_600_000)
        peer.answer(frame.command, frame.correlation, pack(counts))
        return True

    def ledger(peer: Peer, frame: Frame) -> bool:
        line = DelayLedgerLine(topic="t", accepted=6, pending=1, dispatched=2, cancelled=3)
        peer.answer(frame.command, frame.correlation, pack(DelayLedger(lines=[line])))
        return True

    broker.behave(Command.DELAY_COUNT, count)
    broker.behave(Command.DELAY_LEDGER, ledger)

    assert (await mq.admin.delays.counts()).hours == [(0, 10), (3_600_000, 2)]
    [line] = await mq.admin.delays.ledger()
    assert (line.accepted, line.pending, line.dispatched, line.cancelled) == (12, 2, 4, 6)
