"""Messages for later on real processes: when they come, how they are changed, what is shown."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import ternmq
from ternmq import CancelResult
from tests.integration.processes import Node, NodeFactory, tern
from tests.integration.verifiable_clients import whole_topic
from tests.waiting import until, wait_until


async def arrived(mq: ternmq.Client, topic: str, count: int, seconds: float = 20.0) -> list[str]:
    """The bodies in the broker once there are so many, in order."""
    found: list[str] = []

    async def enough() -> bool:
        found[:] = (await whole_topic(mq, topic)).values()
        return len(found) >= count

    await until(enough, f"{count} messages in {topic!r}", seconds=seconds)
    return found


async def known(mq: ternmq.Client, delay_server: str) -> None:
    """The meta server may have restarted: wait until it heard of the delay server again."""

    async def heard() -> bool:
        routes = await mq.admin.routes()
        return any(each.kind == "delay" and each.broker_group == delay_server for each in routes)

    await until(heard)


async def pending(mq: ternmq.Client, topic: str) -> tuple[int, int, int, int]:
    (line,) = await mq.admin.delays.ledger(topic)
    assert line.accepted == line.pending + line.dispatched + line.cancelled, line
    return line.accepted, line.pending, line.dispatched, line.cancelled


async def settled(mq: ternmq.Client, topic: str, sums: tuple[int, int, int, int]) -> None:
    """The broker's answer may be a moment behind what can be read there."""

    async def agree() -> bool:
        return await pending(mq, topic) == sums

    await until(agree, f"accepted, pending, dispatched, cancelled: {sums}")


async def test_a_message_for_later_comes_then_and_not_before(shared_node: Node) -> None:
    """Q7, R7: delay and at, with everything a message carries."""
    topic = "delay.when"
    async with ternmq.connect(shared_node.url, app="shop") as mq:
        at = datetime.now(UTC) + timedelta(seconds=1.2)
        second = await mq.send(
            topic,
            b"second",
            at=at,
            key="k",
            tag="vip",
            order_key="o",
            priority=3,
            ttl=60,
            properties={"n": 1},
        )
        first = await mq.send(topic, b"first", delay=0.6)
        past = await mq.send(topic, b"past", at=datetime(1999, 1, 1, tzinfo=UTC))
        due = {"second": second.due_at, "first": first.due_at, "past": past.due_at}
        got: list[ternmq.Message] = []
        async with asyncio.timeout(20), mq.consumer(topic, group="g") as consumer:
            while len(got) < 3:
                message = await anext(consumer)
                got.append(message)
                message.ack()

    assert [message.body for message in got] == [b"past", b"first", b"second"]
    assert [message.id for message in got] == [past.id, first.id, second.id]
    for message in got:
        late = message.stored_at - due[message.body.decode()]  # type: ignore[operator]
        assert late >= timedelta(0), "never early"
    last = got[-1]
    assert (last.key, last.tag, last.order_key, last.priority) == ("k", "vip", "o", 3)
    assert dict(last.properties) == {"n": 1}
    assert last.app == "shop"


async def test_cancel_reschedule_and_fire_tell_the_truth(shared_node: Node) -> None:
    """Issue 4: by receipt and by id, durable, idempotent; the ledger is exact."""
    topic = "delay.change"
    async with ternmq.connect(shared_node.url) as mq:
        one, two, three = [
            await mq.send(topic, body, delay=3600) for body in (b"one", b"two", b"three")
        ]
        assert await mq.cancel(one) is CancelResult.CANCELLED
        assert await mq.cancel(one.id) is CancelResult.CANCELLED
        assert await mq.fire_now(one) is CancelResult.CANCELLED
        assert await mq.fire_now(two.id) is CancelResult.FIRED
        assert await arrived(mq, topic, 1) == ["two"]
        assert await mq.cancel(two) is CancelResult.ALREADY_DISPATCHED
        assert await mq.reschedule(two, delay=5) is CancelResult.ALREADY_DISPATCHED
        assert await mq.reschedule(three, delay=7200) is CancelResult.RESCHEDULED
        (row,) = await mq.admin.delays.rows(topic=topic)
        assert row.due_at_ms - (three.due_at_ms or 0) > 3_500_000
        assert await mq.reschedule(three, at=datetime.now(UTC)) is CancelResult.RESCHEDULED
        assert await arrived(mq, topic, 2) == ["two", "three"]
        assert await mq.cancel("0" * 26) is CancelResult.UNKNOWN
        await settled(mq, topic, (3, 0, 2, 1))


async def test_a_cancel_in_the_moment_of_firing_is_true(shared_node: Node) -> None:
    """CANCELLED means never, ALREADY_DISPATCHED means once; there is nothing in between."""
    topic = "delay.race"
    async with ternmq.connect(shared_node.url) as mq:
        due = datetime.now(UTC) + timedelta(seconds=1)
        sent = await mq.send_many(topic, [b"%d" % at for at in range(300)], at=due)
        receipts = list(sent)
        results: dict[str, CancelResult] = {}

        async def cancel(at: int) -> None:
            await asyncio.sleep(
                max(0.0, (due - datetime.now(UTC)).total_seconds() - 0.1 + at / 1e3)
            )
            results[str(at)] = await mq.cancel(receipts[at])

        await asyncio.gather(*(cancel(at) for at in range(len(receipts))))
        cancelled = {body for body, result in results.items() if result is CancelResult.CANCELLED}
        others = {
            body for body, result in results.items() if result is CancelResult.ALREADY_DISPATCHED
        }
        assert len(cancelled) + len(others) == 300
        assert sorted(await arrived(mq, topic, len(others))) == sorted(others)
        accepted, waiting, dispatched, gone = await pending(mq, topic)
        assert (accepted, waiting, dispatched, gone) == (300, 0, len(others), len(cancelled))


async def test_too_far_ahead_is_refused_at_the_producer(shared_node: Node) -> None:
    async with ternmq.connect(shared_node.url) as mq:
        with pytest.raises(ternmq.BadRequest, match="731 days"):
            await mq.send("delay.far", b"x", delay=timedelta(days=732))
        receipt = await mq.send("delay.far", b"x", delay=timedelta(days=730))
        assert await mq.cancel(receipt) is CancelResult.CANCELLED


def test_the_blocking_client_has_the_same(shared_node: Node) -> None:
    with ternmq.sync.connect(shared_node.url) as mq:
        receipt = mq.send("delay.sync", b"x", delay=3600)
        mq.send_nowait("delay.sync", b"y", delay=3600)
        mq.flush()
        assert mq.reschedule(receipt, delay=7200) is CancelResult.RESCHEDULED
        assert len(mq.admin.delays.rows(topic="delay.sync")) == 2
        assert mq.cancel(receipt.id) is CancelResult.CANCELLED
        assert sum(count for _, count in mq.admin.delays.counts("delay.sync").hours) == 1
        assert mq.admin.delays.ledger("delay.sync")[0].cancelled == 1


def test_the_command_line_sends_lists_finds_and_counts(shared_node: Node) -> None:
    url, topic = shared_node.url, "delay.cli"
    sent = tern("send", topic, "a", "--delay", "30m", "--key", "o-1", "--json", url=url).json()
    tern("send", topic, "b", "--at", "2027-12-24T18:00:00+01:00", "--key", "o-2", url=url)

    rows = tern("delay", "list", "--topic", topic, "--json", url=url).json()
    assert rows[0]["id"] == sent["id"]
    assert [row["due_at"] for row in rows] == [sent["due_at"], "2027-12-24T17:00:00.000Z"]
    hour = ["--hour", "2027-12-24T17Z", "--topic", topic]
    assert "  o-2  " in tern("delay", "list", *hour, url=url).out
    assert tern("delay", "find", sent["id"], "--json", url=url).json()[0]["key"] == "o-1"
    counts = tern("delay", "count", "--topic", topic, "--json", url=url).json()
    assert counts["pending"] == 2
    assert counts["hours"][-1] == {"start": "2027-12-24T17:00:00.000Z", "pending": 1}
    chart = tern("delay", "count", "--topic", topic, url=url).out
    assert "2027-12-24T17:00Z  1  " in chart
    assert chart.endswith(f"2 messages wait in {topic}\n")


def test_the_command_line_cancels_reschedules_and_fires(shared_node: Node) -> None:
    url, topic = shared_node.url, "delay.cli2"
    with ternmq.sync.connect(url) as mq:
        ids = [mq.send(topic, b, key=b.decode(), delay=3600).id for b in (b"a", b"b", b"c")]
    assert tern("delay", "cancel", ids[0], url=url).out == f"{ids[0]}  cancelled\n"
    to = ["--delay", "2h", "--yes"]
    later = tern("delay", "reschedule", "--key", "b", "--topic", topic, *to, url=url)
    assert later.out == f"{ids[1]}  rescheduled\n"
    assert tern("delay", "fire", ids[2], "--json", url=url).json()["results"] == {ids[2]: "fired"}
    assert tern("consume", topic, "-g", "g", "-n", "1", url=url).out == "c\n"
    late = tern("delay", "cancel", ids[2], "0" * 26, url=url, code=1)
    assert late.out == "2 chosen, 0 cancelled, 2 not\n"
    assert "already dispatched" in late.err
    assert "unknown" in late.err
    ledger = tern("ledger", topic, "--json", url=url).json()
    (line,) = [line for line in ledger if line["lane"] == "delay"]
    states = [line[state] for state in ("accepted", "pending", "dispatched", "cancelled", "sum")]
    assert states == [3, 1, 1, 1, 3]
    assert "delay server main" in tern("doctor", url=url, code=None).out


def test_a_mistake_that_the_server_finds_is_one_line(shared_node: Node) -> None:
    refused = tern("send", "t", "x", "--delay", "1000d", url=shared_node.url, code=2)

    assert "731 days" in refused.err
    assert refused.err.count("\n") == 1


@pytest.mark.long
async def test_a_delay_server_of_its_own_waits_for_a_broker_that_is_down(
    node_factory: NodeFactory,
) -> None:
    """Issue 4: brokers down: what is due goes out after, once; then the server's own restarts."""
    node = node_factory(arguments=["--no-delay"])
    server = node_factory.delay_server(node)
    async with ternmq.connect(node.url) as mq:
        due = datetime.now(UTC) + timedelta(seconds=0.5)
        sent = await mq.send_many("orders", [b"%d" % at for at in range(2_000)], at=due)
        assert sent[0].broker_group == "later"
    node.kill()
    wait_until(lambda: datetime.now(UTC) > due + timedelta(seconds=0.3), "their falling due")
    node.start()
    async with ternmq.connect(node.url) as mq:
        bodies = await arrived(mq, "orders", 2_000)
        assert sorted(map(int, bodies)) == list(range(2_000))
        await known(mq, "later")
        await settled(mq, "orders", (2_000, 0, 2_000, 0))
        receipt = await mq.send("orders", b"later", delay=3600)
        server.kill()
        with pytest.raises(ternmq.Unavailable, match="later"):
            await mq.cancel(receipt.id)
        server.start()
        await known(mq, "later")
        assert await mq.cancel(receipt.id) is CancelResult.CANCELLED
        assert server.stop() == 0
        with pytest.raises(ternmq.Unavailable, match="'later' is not running"):
            await mq.admin.delays.ledger()
    assert "is forgotten" in tern("delay", "forget", "later", "--yes", url=node.url).out
