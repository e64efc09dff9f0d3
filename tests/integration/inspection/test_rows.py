"""Single messages as a running broker tells of them: states, leases, what waits, traces (R23)."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

import ternmq
from ternmq.core.errors import BadRequest, GroupNotFound, TopicNotFound
from ternmq.testing import node
from tests.integration.delivery.test_delivery import ledger_shows, take
from tests.integration.processes import Node, tern
from tests.waiting import until


@pytest.fixture
async def mq() -> AsyncIterator[Any]:
    async with node() as url, ternmq.connect(url, app="shop") as client:
        yield client


async def states(mq: Any, *sequences: int, group: str = "g") -> list[str]:
    found = await mq.admin.message_states("t", list(sequences), group)
    return [each.state for each in found]


async def fill(mq: Any, count: int) -> None:
    await mq.send_many("t", [f"{number}".encode() for number in range(count)])
    await mq.admin.create_group("t", "g", ternmq.Start())


async def test_each_row_is_in_its_state(mq: Any) -> None:
    await fill(mq, 6)
    await mq.admin.set_group("t", "g", retry="fixed:1h")
    consumer = await mq.consumer("t", group="g", prefetch=4).start()
    acked, failed, rejected, held = await take(consumer, 4)
    await acked.ack()
    await failed.retry(error=ValueError("no account"))
    await rejected.reject("no")
    await until(lambda: settled(mq), "the three are settled")

    found = await mq.admin.message_states("t", [0, 1, 2, 3, 9])

    assert [each.state for each in found] == ["acked", "waiting", "dead", "in_flight", "unstored"]
    _, waiting, _, in_flight, _ = found
    assert (waiting.attempt, waiting.error) == (2, "ValueError: no account")
    assert 3_500_000 < waiting.due_ms - waiting.now_ms <= 3_600_000
    assert waiting.failed_at_ms > 0
    assert (in_flight.holder.app, in_flight.attempt) == ("shop", 1)
    assert in_flight.since_ms <= in_flight.now_ms < in_flight.until_ms
    assert held.sequence == 3
    await consumer.close()


async def settled(mq: Any) -> bool:
    return (await states(mq, 0, 1, 2)) == ["acked", "waiting", "dead"]


async def test_rows_before_a_group_began_and_rows_it_skipped_are_told_apart(mq: Any) -> None:
    await mq.send_many("t", [b"x"] * 4)
    await mq.admin.create_group("t", "late", ternmq.Start(at="sequence", value=2))
    await mq.admin.create_group("t", "g", ternmq.Start())
    await mq.admin.reset_group("t", "g", 3)

    found = await mq.admin.message_states("t", [1, 3])

    assert [(each.group, each.sequence, each.state) for each in found] == [
        ("g", 1, "skipped"),
        ("g", 3, "ready"),
        ("late", 1, "before"),
        ("late", 3, "ready"),
    ]


async def test_many_groups_come_in_pages_each_once(mq: Any) -> None:
    await mq.send("t", b"x")
    names = [f"g{number:02}" for number in range(25)]
    for name in names:
        await mq.admin.create_group("t", name, ternmq.Start())

    found = await mq.admin.message_states("t", list(range(100)))

    assert sorted({each.group for each in found}) == names, "20 groups fit into the first page"
    assert len(found) == 2_500


async def test_a_row_behind_another_of_its_key_names_it(mq: Any) -> None:
    await mq.send("t", b"a0", order_key="a")
    await mq.send("t", b"a1", order_key="a")
    async with mq.consumer("t", group="g", ordered=True, start="earliest") as consumer:
        [first] = await take(consumer, 1)

        [head, second] = await mq.admin.message_states("t", [0, 1])

        assert head.state == "in_flight"
        assert (second.state, second.blocking_key, second.blocking_sequence) == ("ready", "a", 0)
        await first.ack()


async def test_leases_say_who_holds_what_since_when(mq: Any) -> None:
    await fill(mq, 10)
    consumer = await mq.consumer("t", group="g", prefetch=10).start()
    await take(consumer, 10)

    leases = await mq.admin.leases("t", "g")

    assert sum(lease.rows for lease in leases) == 10
    [first, *_] = leases
    assert (first.holder.app, first.first, first.attempt) == ("shop", 0, 1)
    assert 0 < first.since_ms < first.until_ms
    assert not first.vanished
    await consumer.close()


async def test_what_waits_is_listed_by_due_time_and_counted_by_error(mq: Any) -> None:
    await fill(mq, 5)
    consumer = await mq.consumer("t", group="g").start()
    for message in await take(consumer, 5):
        error = KeyError("gone") if message.sequence == 4 else ValueError("no account")
        await message.retry(after=3_600 - message.sequence * 60, error=error)
    await ledger_shows(mq, "waiting_retry", 5)

    waiting = await mq.admin.waiting("t", "g", limit=2)

    assert [row.first for row in waiting.rows] == [4, 3], "those that are due first"
    assert (waiting.total, waiting.scanned) == (5, 5)
    assert [(each.error, each.rows) for each in waiting.errors] == [
        ("ValueError: no account", 4),
        ("KeyError: 'gone'", 1),
    ]
    await consumer.close()


async def test_a_trace_tells_every_step_of_one_message_and_of_no_other(mq: Any) -> None:
    """R23, online: without an archive."""
    receipt = await mq.send("t", b"x")
    await mq.send("t", b"another")
    await mq.admin.create_group("t", "g", ternmq.Start())
    await mq.admin.set_group("t", "g", retry="fixed:1ms")
    consumer = await mq.consumer("t", group="g", prefetch=1).start()
    [first] = await take(consumer, 1)
    await first.retry(error=ValueError("no account"))
    for _ in range(2):
        [message] = await take(consumer, 1)
        await message.ack()
    await ledger_shows(mq, "acked", 2)
    await mq.admin.set_group("t", "g", rate=0)  # A decision: all before it is on disk.

    trace = await mq.trace(receipt.id)

    [place] = trace.places
    [group] = place.groups
    kinds = [event.kind for event in group.events if event.kind != "settings"]
    assert kinds == ["group_made", "handed_out", "retry", "handed_out", "acked"]
    retry = next(event for event in group.events if event.kind == "retry")
    assert (retry.error, retry.attempt) == ("ValueError: no account", 2)
    assert group.state.state == "acked"
    assert group.why.startswith("it was acked at ")
    assert " by shop@" in group.why
    assert place.complete
    assert not trace.missing
    await consumer.close()


async def test_a_message_that_nobody_wants_is_explained(mq: Any) -> None:
    receipt = await mq.send("t", b"x")
    await mq.admin.create_group("t", "g", ternmq.Start())

    [place] = (await mq.trace(receipt.id)).places

    assert [group.why for group in place.groups] == ["nobody consumes in group g at present"]


async def test_a_message_that_is_not_due_is_found_with_the_delay_server(mq: Any) -> None:
    receipt = await mq.send("t", b"x", delay=3_600)

    trace = await mq.trace(receipt.id)

    assert not trace.places
    assert [row.topic for row in trace.delayed] == ["t"]


def test_the_command_line_explains_a_message(shared_node: Node) -> None:
    """J13: "my message did not arrive" ends in one sentence."""
    url, topic = shared_node.url, f"topic-{uuid4().hex[:12]}"
    sent = tern("send", topic, "x", "--json", url=url).json()
    tern("group", "create", topic, "g", url=url)

    assert "nobody consumes in group g" in tern("explain", sent["id"], url=url).out
    shown = tern("trace", sent["id"], "--json", url=url).json()
    assert [group["state"]["state"] for group in shown["places"][0]["groups"]] == ["ready"]
    assert "group made" in tern("trace", sent["id"], url=url).out
    assert tern("leases", topic, "g", "--json", url=url).json() == []
    assert tern("waiting", topic, "g", "--json", url=url).json()["total"] == 0
    nothing = tern("explain", "0" * 26, url=url, code=1)
    assert (nothing.code, nothing.out) == (1, "")


async def test_mistakes_are_told(mq: Any) -> None:
    await fill(mq, 1)

    with pytest.raises(TopicNotFound):
        await mq.admin.message_states("nothing", [1])
    with pytest.raises(GroupNotFound):
        await mq.admin.leases("t", "nobody")
    with pytest.raises(BadRequest, match="1 to 100 sequences"):
        await mq.admin.message_states("t", list(range(101)))
    with pytest.raises(BadRequest, match="limit is 0"):
        await mq.admin.waiting("t", "g", limit=0)
    with pytest.raises(BadRequest, match="sequences begin at 0"):
        await mq.admin.trace("t", -1)
