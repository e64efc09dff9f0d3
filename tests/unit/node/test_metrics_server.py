"""The page of figures: what readers get, and that nobody waits for them (R25, J13)."""

import asyncio
import socket
from contextlib import suppress
from http.client import HTTPConnection

import pytest
from prometheus_client.parser import text_string_to_metric_families

import ternmq
from ternmq.core.clock import SystemClock
from ternmq.core.config import NodeConfig
from ternmq.core.errors import BadConfig
from ternmq.metrics.samples import Samples
from ternmq.metrics.table import BY_NAME
from ternmq.node import metrics_server
from ternmq.node.metrics_server import serving_metrics
from ternmq.testing import node

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str = "/metrics", **headers: str) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


async def series(port: int) -> Series:
    status, body = await asyncio.to_thread(get, port)
    assert status == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def value(found: Series, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


async def nothing(out: Samples) -> None:
    out.add("tern_broker_topics", 7)


async def test_other_paths_are_pointed_to_the_page_and_text_may_be_compressed() -> None:
    port = free_port()
    async with serving_metrics(NodeConfig(metrics_port=port), [nothing], clock=SystemClock()):
        status, body = await asyncio.to_thread(get, port, "/")
        assert (status, body) == (404, b"figures are at /metrics\n")
        status, packed = await asyncio.to_thread(
            get, port, "/metrics?x=1", **{"Accept-Encoding": "gzip"}
        )
        assert (status, packed[:2]) == (200, b"\x1f\x8b")
        assert value(await series(port), "tern_broker_topics") == 7


async def test_a_loop_that_does_not_answer_in_time_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_server, "GATHER_S", 0.05)
    port = free_port()
    stuck = asyncio.Event()

    async def never(out: Samples) -> None:
        await stuck.wait()

    async with serving_metrics(NodeConfig(metrics_port=port), [never], clock=SystemClock()):
        status, body = await asyncio.to_thread(get, port)
        assert (status, body) == (503, b"the node is too busy or stopping\n")


async def test_stopping_does_not_wait_for_a_reader() -> None:
    port = free_port()
    asked = asyncio.Event()

    async def slow(out: Samples) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with serving_metrics(NodeConfig(metrics_port=port), [slow], clock=SystemClock()):
        reading = asyncio.create_task(asyncio.to_thread(get, port))
        await asked.wait()
    assert (await reading)[0] == 503


async def test_a_taken_port_stops_the_start_with_a_text_that_says_so() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        config = NodeConfig(metrics_port=other.getsockname()[1])
        with pytest.raises(BadConfig, match="taken by another process"):
            async with serving_metrics(config, [], clock=SystemClock()):
                pass


@pytest.mark.parametrize("port", [7700, 7702])
def test_the_nodes_own_ports_are_refused(port: int) -> None:
    with pytest.raises(BadConfig, match="own ports"):
        NodeConfig(metrics_port=port)


async def test_series_are_bounded_and_the_rest_is_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """R25: figures of any number of topics and groups, in a bounded number of series."""
    monkeypatch.setattr("ternmq.broker.operations.prometheus.TOPICS_MAX", 2)
    monkeypatch.setattr("ternmq.broker.operations.prometheus.LANES_MAX", 1)
    port = free_port()
    async with node(metrics_port=port) as url, ternmq.connect(url, app="test") as mq:
        for number in range(4):
            await mq.send_many(f"topic-{number}", [b"x"] * (number + 1))
            await mq.admin.create_group(f"topic-{number}", "g", ternmq.Start())
        found = await series(port)

    stored = {
        dict(labels)["topic"]: count
        for (name, labels), count in found.items()
        if name == "tern_topic_stored_messages_total"
    }
    assert stored == {"topic-0": 1, "topic-1": 2, "%other": 7}
    backlog = "tern_group_backlog_messages"
    assert value(found, backlog, topic="topic-0", group="g", lane="topic") == 1
    assert value(found, backlog, topic="%other", group="%other", lane="topic") == 9
    assert value(found, "tern_broker_topics") == value(found, "tern_broker_groups") == 4


async def test_every_metric_of_the_table_is_on_the_page_of_a_node() -> None:
    """What is written down is what there is; nothing is on the page that is not in the table."""
    port = free_port()
    async with node(metrics_port=port) as url, ternmq.connect(url, app="test") as mq:
        await mq.send("orders", b"x", tag="t")
        async with mq.consumer("orders", group="g") as consumer:
            async for message in consumer:
                message.reject("bad")
                break
            await consumer.flush()
        _, body = await asyncio.to_thread(get, port)
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}

    assert {name.removesuffix("_total") for name in BY_NAME} == {
        name for name in families if not name.startswith("process_")
    }
    silent = {"tern_topic_half_messages", "tern_delay_messages", "tern_meta_heartbeat_age_seconds"}
    silent |= {"tern_meta_members", "tern_meta_epoch"}
    empty = {name for name, family in families.items() if not family.samples}
    assert empty <= silent


async def test_a_reader_that_asks_nothing_holds_up_only_other_readers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_server.MetricsHandler, "timeout", 0.05)
    port = free_port()
    async with serving_metrics(NodeConfig(metrics_port=port), [nothing], clock=SystemClock()):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        found = await series(port)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    assert value(found, "tern_broker_topics") == 7
