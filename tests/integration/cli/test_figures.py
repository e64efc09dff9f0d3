"""Backlog, rates, members and alarms as the command line shows them (R25)."""

import json
import subprocess
from uuid import uuid4

import pytest

import ternmq.sync
from tests.integration.processes import COMMAND, Node, clean_environment, tern
from tests.waiting import wait_until


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid4().hex[:12]}"


def test_a_group_shows_its_backlog_rates_members_and_filter(shared_node: Node, topic: str) -> None:
    """R25: backlog in messages and in time, TPS, live members, who filters how."""
    url = shared_node.url
    with ternmq.sync.connect(url, app="shop") as mq:
        mq.send_many(topic, [b"x" * 100] * 500, tag="vip")
        with mq.consumer(topic, group="g", tag="vip", prefetch=10) as consumer:
            for _ in range(100):
                next(consumer).ack()
            consumer.flush()
            shown = tern("group", "show", topic, "g", "--json", url=url).json()
            facts = tern("group", "show", topic, "g", url=url).out
        [figures] = shown["figures"]
        line = shown["ledger"]
        assert figures["backlog"] == line["ready"] == 500 - 100 - line["in_flight"]
        assert 0 < figures["backlog_ms"] < 60_000
        assert 100 <= figures["delivered"]["messages"] <= 130
        assert figures["delivered"]["messages_10s"] > 0
        assert figures["delivered"]["bytes_60s"] > 0
        assert (figures["alarm"], figures["held_back"]) == (False, "")
        [member] = shown["members"]
        assert (member["app"], shown["filter"]) == ("shop", "tag 'vip'")
        assert "tag 'vip'" in facts
        assert "oldest" in facts
        assert shown["handle"]["messages"] == 100
        assert shown["wait"]["messages"] == figures["delivered"]["messages"]
        assert 0 < shown["wait"]["p50_s"] <= shown["wait"]["p99_s"] < 60
        assert "handle  " in facts and "100 messages, last minutes" in facts


def test_a_backlog_over_its_alarm_is_logged_and_shown_until_it_is_over(
    shared_node: Node, topic: str
) -> None:
    """R25: backlog alarm."""
    with ternmq.sync.connect(shared_node.url, app="shop") as mq:
        mq.send_many(topic, [b"x"] * 50)
        mq.admin.create_group(topic, "g", ternmq.Start())
        mq.admin.set_group(topic, "g", backlog_alarm=40, paused=True)
        wait_until(lambda: mq.admin.group_figures(topic, "g")[0].alarm, "the alarm")
        [figures] = mq.admin.group_figures(topic, "g")
        assert figures.held_back == "the group is paused"
        lines = [line for line in shared_node.stderr_text().splitlines() if topic in line]
        assert any("backlog alarm" in line and "50" in line for line in lines)

        mq.admin.set_group(topic, "g", paused=False)
        with mq.consumer(topic, group="g") as consumer:
            for _ in range(50):
                next(consumer).ack()
            wait_until(lambda: not mq.admin.group_figures(topic, "g")[0].alarm, "the end of it")
    assert "backlog alarm is over" in shared_node.stderr_text()


def test_watching_shows_it_again_every_second(shared_node: Node, topic: str) -> None:
    with ternmq.sync.connect(shared_node.url, app="shop") as mq:
        mq.send(topic, b"x")
        watching = subprocess.Popen(
            [*COMMAND, "topic", "show", topic, "--watch", "--json"],
            stdout=subprocess.PIPE,
            env=clean_environment({"TERN_URL": shared_node.url}),
        )
        try:
            assert watching.stdout is not None
            assert json.loads(watching.stdout.readline())["messages"] == 1
            mq.send(topic, b"y")
            while json.loads(watching.stdout.readline())["messages"] != 2:
                pass
        finally:
            watching.terminate()
            watching.communicate(timeout=10)
