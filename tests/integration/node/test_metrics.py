"""The page for Prometheus of a real node agrees with what the command line says (R25, J13)."""

import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client.parser import text_string_to_metric_families

import ternmq
import ternmq.sync
from ternmq.core.errors import PutAside
from ternmq.metrics.table import LEDGER_STATES
from tests.integration.processes import Node, NodeFactory, free_ports, tern
from tests.waiting import wait_until

Labels = frozenset[tuple[str, str]]


class Page:
    """One look, as `curl` sees it."""

    def __init__(self, port: int) -> None:
        url = f"http://127.0.0.1:{port}/metrics"
        curl = shutil.which("curl")
        assert curl, "these tests need curl"
        done = subprocess.run([curl, "-sSf", url], capture_output=True, check=True, timeout=20)
        self._values: dict[tuple[str, Labels], float] = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(done.stdout.decode())
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self._values[name, frozenset(labels.items())]

    def topics(self) -> set[str]:
        return {dict(labels).get("topic", "") for _, labels in self._values} - {""}


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Node]:
    """One for all tests here: each uses a topic of its own."""
    factory = NodeFactory(tmp_path_factory.mktemp("metrics"))
    try:
        yield factory(arguments=["--metrics-port", str(port)])
    finally:
        factory.finish()


def test_the_figures_of_groups_and_topics_agree_with_the_command_line_and_the_ledger(
    node: Node, port: int
) -> None:
    """R25: acked, retried, dead, filtered, in flight, backlog; after a restart the ledger's too."""
    with ternmq.sync.connect(node.url, app="shop") as mq:
        mq.send_many("orders", [b"x"] * 40, tag="vip")
        mq.send_many("orders", [b"x"] * 10, tag="other")
        mq.send_many("orders", [b"x"] * 20, tag="vip")
        mq.admin.create_group("orders", "g", ternmq.Start(at="earliest"))
        mq.admin.set_group("orders", "g", retry="fixed:1h")
        with mq.consumer("orders", group="g", tag="vip", prefetch=10) as consumer:
            for number, message in enumerate(consumer):
                if number < 30:
                    message.ack()
                elif number < 33:
                    message.retry(reason="not yet")
                else:
                    message.reject("bad")
                if number == 34:
                    break
            consumer.flush()
            show = tern("group", "show", "orders", "g", "--json", url=node.url).json()
            page = Page(port)
            assert page("tern_group_members", topic="orders", group="g", lane="topic") == 1
            agrees(page, show)
        delayed = mq.send("orders", b"later", delay=3600)
        assert mq.cancel(delayed).value == "cancelled"
        page = Page(port)
        assert_outcomes(page)
        assert_topic(page)
    assert page("tern_delay_messages", topic="orders", state="cancelled") == 1
    assert page("tern_meta_servers", role="broker", state="there") == 1
    assert page("tern_server_append_seconds_count", role="broker") > 0
    assert page("process_resident_memory_bytes") > 10_000_000

    node.restart()
    show = tern("group", "show", "orders", "g", "--json", url=node.url).json()
    page = Page(port)
    agrees(page, show)
    assert page("tern_topic_stored_messages_total", topic="orders") == 70
    assert page("tern_topic_stored_bytes_total", topic="orders") == 0
    assert not [topic for topic in page.topics() if topic.startswith("%")]


def agrees(page: Page, show: dict) -> None:  # type: ignore[type-arg]
    lane = {"topic": "orders", "group": "g", "lane": "topic"}
    line = show["ledger"]
    for state in LEDGER_STATES:
        assert page("tern_group_messages", **lane, state=state) == line[state]
    total = sum(page("tern_group_messages", **lane, state=state) for state in LEDGER_STATES)
    assert total == line["total"] == 70
    [figures] = show["figures"]
    assert page("tern_group_backlog_messages", **lane) == figures["backlog"] == line["ready"]
    assert page("tern_group_backlog_seconds", **lane) >= figures["backlog_ms"] / 1000
    assert page("tern_group_delivered_messages_total", **lane) == figures["delivered"]["messages"]
    waiting = line["in_flight"] + line["waiting_retry"]
    assert page("tern_group_unacked_messages", **lane) == waiting


def assert_outcomes(page: Page) -> None:
    lane = {"topic": "orders", "group": "g", "lane": "topic"}
    expected = {"acked": 30, "retried": 3, "dead": 2, "lost": 0, "expired": 0}
    for outcome, count in expected.items():
        assert page("tern_group_outcomes_total", **lane, outcome=outcome) == count
    filtered = page("tern_group_messages", **lane, state="filtered")
    assert page("tern_group_outcomes_total", **lane, outcome="filtered") == filtered
    assert page("tern_group_dead_letters", group="g") == 2


def assert_topic(page: Page) -> None:
    assert page("tern_topic_stored_messages_total", topic="orders") == 70
    assert page("tern_topic_kept_messages", topic="orders") == 70
    assert page("tern_topic_stored_bytes_total", topic="orders") > 0
    assert page("tern_topic_publish_messages_per_second", topic="orders") > 0


def test_refused_messages_pauses_and_alarms_are_on_the_page(node: Node, port: int) -> None:
    """R25, J13, D10: refused by a limit, put aside, backlog alarm, held back."""
    with ternmq.sync.connect(node.url, app="shop") as mq:
        mq.admin.create_topic("limited")
        mq.admin.set_topic("limited", rate=5, over_limit="dead_letter")
        mq.send_many("limited", [b"x"] * 200)  # In debt for 40 s.
        with pytest.raises(PutAside):
            mq.send_many("limited", [b"x"] * 3)
        mq.admin.create_group("limited", "g", ternmq.Start(at="earliest"))
        mq.admin.set_group("limited", "g", backlog_alarm=1, paused=True)
        wait_until(lambda: mq.admin.group_figures("limited", "g")[0].alarm, "the alarm")
        [figures] = mq.admin.topic_figures("limited")
        page = Page(port)
    assert page("tern_topic_put_aside_messages", topic="limited") == figures.put_aside == 3
    lane = {"topic": "limited", "group": "g", "lane": "topic"}
    assert page("tern_group_alarm", **lane) == page("tern_group_held_back", **lane) == 1
    assert page("tern_broker_alarms", alarm="backlog") == 1


def test_reading_the_page_again_and_again_disturbs_nobody(node: Node, port: int) -> None:
    """Readers have a thread of their own; the loop goes on."""
    with ThreadPoolExecutor(2) as readers, ternmq.sync.connect(node.url, app="shop") as mq:
        reading = [readers.submit(Page, port) for _ in range(20)]
        with mq.consumer("busy", group="g") as consumer:
            for number in range(200):
                mq.send("busy", str(number).encode())
                message = next(consumer)
                assert message.body == str(number).encode()
                message.ack()
        assert all(reader.result(30).topics() for reader in reading)


def test_a_delay_server_of_its_own_has_a_page_and_meta_shows_its_heartbeat(
    node_factory: NodeFactory, node: Node, port: int
) -> None:
    """D3: who is there; heartbeats of servers that are processes of their own."""
    server = node_factory.delay_server(node, "later", start=False)
    own = free_ports()
    server.arguments = ["--metrics-port", str(own)]
    server.start()
    page = Page(port)
    assert page("tern_meta_servers", role="delay", state="there") == 2
    assert 0 <= page("tern_meta_heartbeat_age_seconds", role="delay", server="later") < 10
    assert Page(own)("tern_server_healthy", role="delay") == 1


def test_how_long_messages_wait_and_are_worked_on_are_histograms(node: Node, port: int) -> None:
    lane = {"topic": "timed", "group": "g", "lane": "topic"}
    with ternmq.sync.connect(node.url, app="shop") as mq:
        mq.send_many("timed", [b"x"] * 50)
        with mq.consumer("timed", group="g") as consumer:
            for _ in range(50):
                next(consumer).ack()
            consumer.flush()

    page = Page(port)
    for name in ("tern_group_wait_seconds", "tern_group_handle_seconds"):
        assert page(f"{name}_count", **lane) == 50
        assert page(f"{name}_bucket", **lane, le="+Inf") == 50
        assert page(f"{name}_bucket", **lane, le="60.0") == 50
        assert 0 <= page(f"{name}_sum", **lane) < 50 * 60
