"""The page of figures of a node: bounded series, and nothing that is not in the table (R25)."""

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

import ternmq
from ternmq.metrics.table import BY_NAME
from ternmq.testing import node
from tests.unit.node.metrics_page import free_port, get, series, value


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
        await mq.send_many("orders", [b"x", b"y"], tag="t")
        async with mq.consumer("orders", group="g") as consumer:
            (await anext(consumer)).reject("bad")
            (await anext(consumer)).ack()
            await consumer.flush()
        _, body = await asyncio.to_thread(get, port)
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}

    assert {name.removesuffix("_total") for name in BY_NAME} == {
        name for name in families if not name.startswith("process_")
    }
    silent = {"tern_topic_half_messages", "tern_delay_messages", "tern_meta_heartbeat_age_seconds"}
    silent |= {"tern_meta_members", "tern_meta_epoch"}
    silent |= {name.removesuffix("_total") for name in BY_NAME if name.startswith("tern_tls_")}
    empty = {name for name, family in families.items() if not family.samples}
    assert empty <= silent
