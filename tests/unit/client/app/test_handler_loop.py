"""How messages and batches are settled by what handlers do."""

from structlog.testing import capture_logs

import ternmq
from ternmq.client.app.failure_log import LINES_MAX
from tests.unit.client.app.test_app import kinds
from tests.unit.client.fake_broker import FakeBroker
from tests.waiting import until


async def test_a_batch_handler_gets_messages_together_and_returning_acks_all(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    app = ternmq.App(broker.url)
    sizes: list[int] = []

    @app.subscriber("orders", group="billing", batch=True, batch_size=4)
    async def bill(batch: ternmq.MessageBatch) -> None:
        assert [message.body for message in batch] == batch.bodies
        sizes.append(len(batch))

    await mq.send_many("orders", [b"%d" % n for n in range(10)])
    async with app:
        await until(lambda: len(kinds(broker)) == 10)

    assert sizes == [4, 4, 2]
    assert kinds(broker) == ["ack"] * 10


async def test_a_batch_handler_waits_for_more_only_as_long_as_it_was_told(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    app = ternmq.App(broker.url)
    seen: list[list[bytes]] = []

    @app.subscriber("orders", group="billing", batch=True, batch_size=3, batch_wait=30)
    async def full(batch: ternmq.MessageBatch) -> None:
        seen.append(batch.bodies)

    @app.subscriber("refunds", group="billing", batch=True, batch_size=3, batch_wait=0.05)
    async def part(batch: ternmq.MessageBatch) -> None:
        seen.append(batch.bodies)

    async with app:
        await mq.send("refunds", b"r")
        await until(lambda: seen == [[b"r"]])  # Time was up.
        for body in (b"a", b"b", b"c"):
            await mq.send("orders", body)
        await until(lambda: len(seen) == 2)  # Enough were there.

    assert seen[1] == [b"a", b"b", b"c"]


async def test_a_batch_that_raises_is_tried_in_place_then_given_back_but_for_settled_rows(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    """J10: a batch that fails is retried locally first, then reported to the server."""
    app = ternmq.App(broker.url)
    calls = 0

    @app.subscriber("orders", group="billing", batch=True, local_retries=1, retry_after=7)
    def bill(batch: ternmq.MessageBatch) -> None:
        nonlocal calls
        calls += 1
        batch[0].ack()
        batch[1].reject("broken")
        raise ValueError("no database")

    await mq.send_many("orders", [b"a", b"b", b"c", b"d"])
    async with app:
        await until(lambda: len(kinds(broker)) == 4)

    assert calls == 2
    found = {(d.first, d.end): (d.kind, d.after_ms) for d in broker.done}
    assert found[2, 4] == ("retry", 7000)
    assert found[0, 1][0] == "ack"
    assert found[1, 2][0] == "reject"


async def test_without_auto_ack_what_is_not_settled_comes_again(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    """D11: auto ack and manual ack; what is not acked comes again."""
    app = ternmq.App(broker.url)

    @app.subscriber("orders", group="billing", auto_ack=False)
    async def bill(message: ternmq.Message) -> None:
        if message.body == b"good":
            await message.ack()

    await mq.send_many("orders", [b"good", b"forgotten"])
    async with app:
        await until(lambda: len(kinds(broker)) == 2)

    [retry] = [done for done in broker.done if done.kind == "retry"]
    assert (retry.first, retry.after_ms) == (1, -1)
    assert "without settling" in retry.reason


async def test_a_batch_that_is_being_gathered_is_given_back_when_the_app_stops(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    app = ternmq.App(broker.url)

    @app.subscriber("orders", group="billing", batch=True, batch_size=10, batch_wait=60)
    async def bill(batch: ternmq.MessageBatch) -> None:
        raise AssertionError("there are not enough")

    await mq.send_many("orders", [b"x"] * 3)
    async with app:
        [handler_loop] = app._handler_loops
        await until(lambda: handler_loop._consumer._shown)

    assert kinds(broker) == ["back"] * 3


async def test_many_failures_are_a_few_lines_and_a_count(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    app = ternmq.App(broker.url)

    @app.subscriber("orders", group="billing", retry_after=7)
    def bill(message: ternmq.Message) -> None:
        raise ValueError("no database")

    with capture_logs() as logs:
        await mq.send_many("orders", [b"x"] * 100)
        async with app:
            await until(lambda: len(kinds(broker)) == 100)

    lines = [line for line in logs if line["event"] == "handler failed"]
    more = [line for line in logs if line["event"] == "more handlers failed"]
    assert LINES_MAX <= len(lines) < 100
    assert len(lines) + sum(line["messages"] for line in more) == 100
    assert more[-1]["last_reason"] == "ValueError: no database"
