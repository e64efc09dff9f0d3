"""The page of figures: what readers get, and that nobody waits for them (R25, J13)."""

import asyncio
import socket
from contextlib import suppress

import pytest

from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadConfig
from ternmq.metrics.samples import Samples
from ternmq.node import metrics_server
from ternmq.node.config import NodeConfig
from ternmq.node.metrics_server import serving_metrics
from tests.unit.node.metrics_page import free_port, get, series, value


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
