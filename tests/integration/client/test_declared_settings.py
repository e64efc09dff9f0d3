"""Settings of a group that the code declares: applied at a start, drift is told (F8)."""

from datetime import timedelta

import pytest
from structlog.testing import capture_logs

import ternmq
from ternmq.wire.messages.groups import GroupSettings
from tests.integration.processes import Node, NodeFactory
from tests.waiting import until

DRIFT = "the group was set otherwise; what the code declares holds now"


async def settings(mq: ternmq.Client, topic: str, group: str) -> list[GroupSettings]:
    found = await mq.admin.groups(topic, group)
    return [each.settings for each in found if each.ledger.lane == "topic"]


async def test_what_a_consumer_declares_is_what_its_new_group_is_set_to(shared_node: Node) -> None:
    """F8, R12, J13: on every topic of it."""
    async with (
        ternmq.connect(shared_node.url, app="shop") as mq,
        mq.consumer(
            ["declared.a", "declared.b"],
            group="g",
            retry="exponential:1s..10m",
            on_failure="stop",
            ordered=True,
            ordered_attempts_max=7,
            rate="1000/s",
            in_flight_max=500,
            dead_letter_keep_ms=timedelta(days=1),
        ),
    ):
        for topic in ("declared.a", "declared.b"):
            [found] = await settings(mq, topic, "g")
            assert (found.retry, found.on_failure) == ("exponential:1s..10m", "stop")
            assert (found.ordered_attempts_max, found.rate, found.in_flight_max) == (7, 1000, 500)
            assert found.dead_letter_keep_ms == 86_400_000
            assert (found.attempts_max, found.bytes_rate) == (17, 0)


async def test_drift_is_told_once_and_the_code_wins_when_a_consumer_starts(
    shared_node: Node,
) -> None:
    """F8. Coming back after a lost connection is not starting: an operator's change stays."""
    async with ternmq.connect(shared_node.url, app="shop") as mq:
        async with mq.consumer("drift", group="g", retry="fixed:1s") as consumer:
            await mq.admin.set_group("drift", "g", retry="power", rate=5)
            link = mq.cluster.broker("main")
            assert link.connection is not None
            link.connection.abort()
            await mq.send("drift", b"x")
            (await anext(consumer)).ack()
            assert (await settings(mq, "drift", "g"))[0].retry == "power"
        with capture_logs() as logs:
            async with mq.consumer("drift", group="g", retry="fixed:1s"):
                [found] = await settings(mq, "drift", "g")
                assert (found.retry, found.rate) == ("fixed:1s", 5)
            async with mq.consumer("drift", group="g", retry="fixed:1s"):
                pass
            async with mq.consumer("drift", group="g"):  # Declares nothing, changes nothing.
                pass
    drifts = [each for each in logs if each["event"] == DRIFT]
    assert [each["changed"] for each in drifts] == [{"retry": "power -> fixed:1s"}]


async def test_a_subscriber_has_its_retry_policy_in_code(shared_node: Node) -> None:
    """F8, Q14."""
    app = ternmq.App(shared_node.url, app="shop")
    attempts: list[int] = []

    @app.subscriber("coded", group="g", retry="fixed:20ms", attempts_max=3)
    async def fail(message: ternmq.Message) -> None:
        attempts.append(message.attempt)
        raise ValueError("no")

    async with app:
        await app.mq.send("coded", b"x")
        await until(lambda: attempts == [1, 2, 3])


async def test_it_holds_on_every_broker_group(node_factory: NodeFactory) -> None:
    node = node_factory()
    node_factory.broker_server(node.url, "west")
    async with ternmq.connect(node.url, app="shop") as mq:
        await until(lambda: sorted(mq.broker_groups()) == ["main", "west"])
        async with mq.consumer("everywhere", group="g", retry="fixed:1s"):
            found = await settings(mq, "everywhere", "g")
            assert [each.retry for each in found] == ["fixed:1s", "fixed:1s"]


def test_what_cannot_be_is_refused_where_it_is_written() -> None:
    app = ternmq.App("tern://127.0.0.1:1")
    with pytest.raises(ternmq.BadRequest, match="'often' is not a retry policy; write default"):
        app.subscriber("orders", group="g", retry="often")
    with pytest.raises(ternmq.BadRequest, match="on_failure is 'give up'; it can be 'retry' or"):
        app.subscriber("orders", group="g", on_failure="give up")  # type: ignore[arg-type]
    with pytest.raises(ternmq.BadRequest, match="'fast' is not a rate"):
        app.subscriber("orders", group="g", rate="fast")
