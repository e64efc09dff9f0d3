"""The command line as people type it, against a real node (D14)."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from ternmq.sync import connect
from tests.integration.processes import COMMAND, Node, NodeFactory, clean_environment, tern
from tests.waiting import wait_until


@pytest.fixture
def topic() -> str:
    return f"line-{uuid4().hex[:12]}"


def test_the_url_may_stand_anywhere(shared_node: Node, topic: str) -> None:
    tern("send", topic, "a", url=shared_node.url)
    for line in (
        ["--url", shared_node.url, "topic", "show", topic, "--json"],
        ["topic", "--url", shared_node.url, "--json", "show", topic],
        ["--json", f"--url={shared_node.url}", "topic", "show", topic],
    ):
        assert tern(*line).json()["messages"] == 1


@pytest.mark.parametrize(
    ("line", "code", "error"),
    [
        (["topic", "show", "no-such-topic"], 1, "topic_not_found"),
        (["topic", "create", "bad name"], 2, "bad_name"),
        (["topic", "nonsense"], 2, "usage"),
        (["topic", "show"], 2, "usage"),
        (["find", "--limit", "x"], 2, "usage"),
    ],
)
def test_errors_under_json_are_json(
    shared_node: Node, line: list[str], code: int, error: str
) -> None:
    ran = tern(*line, "--json", url=shared_node.url, code=code)

    assert json.loads(ran.err)["error"]["code"] == error
    assert ran.out == ""


@pytest.mark.parametrize(
    "line", [["consume", "{}", "-g", "g", "--no-follow"], ["group", "create", "{}", "g"]]
)
def test_a_misspelt_topic_is_not_made(shared_node: Node, topic: str, line: list[str]) -> None:
    url = shared_node.url
    tern("topic", "create", topic, url=url)
    typed = [word.format(f"{topic}x") for word in line]

    refused = tern(*typed, url=url, code=1)

    assert f"did you mean '{topic}'" in refused.err and "--create" in refused.err
    listed = [one["name"] for one in tern("topic", "list", "--json", url=url).json()]
    assert f"{topic}x" not in listed
    tern(*typed, "--create", url=url)
    assert tern("topic", "show", f"{topic}x", url=url).code == 0


def test_words_from_elsewhere_get_a_hint(shared_node: Node) -> None:
    for word in (["dead", "redrive"], ["dead", "replay"], ["replay"], ["topic", "purge"]):
        refused = tern(*word, url=shared_node.url, code=2)
        assert "Here it is: tern" in " ".join(refused.err.split())


def test_how_long_a_topic_keeps_is_shown_asked_for_and_refused(
    shared_node: Node, topic: str
) -> None:
    """R16: nothing goes without a question, and nothing is promised that the node does not keep."""
    url = shared_node.url
    tern("send", topic, "a", "b", url=url)
    tern("group", "create", topic, "mail", url=url)

    long = tern("topic", "set", topic, "--keep", "10d", url=url, code=2)
    asked = tern("topic", "set", topic, "--keep", "1ms", url=url, code=2)
    cost = tern("topic", "set", topic, "--keep", "1ms", "--dry-run", "--json", url=url).json()
    assert tern("topic", "show", topic, "--json", url=url).json()["keep_ms"] == 0

    assert "keeps messages for 3d and no longer" in long.err
    assert "2 messages" in asked.err and "mail 2" in asked.err and "--yes" in asked.err
    assert (cost["expires"], cost["unread"]) == (2, {"mail": 2})
    assert "keep           1h" in tern("topic", "set", topic, "--keep", "1h", url=url).out
    assert "keep           1h" in tern("topic", "show", topic, url=url).out
    [line] = [one for one in tern("topic", "list", url=url).out.splitlines() if topic in one]
    assert line.endswith("1h")
    changed = tern("topic", "set", topic, "--keep", "1ms", "--yes", "--json", url=url).json()
    assert changed["keep_ms"] == 1


def test_lanes_and_senders_are_told_apart(shared_node: Node, topic: str) -> None:
    """A copy in a private lane counts its own sequence."""
    url, group = shared_node.url, f"g-{topic}"
    with connect(url, app="shop") as mq:
        mq.send(topic, b"first")
        sent = mq.send(topic, b"wanted", key=topic)
        with mq.consumer(topic, group=group) as consumer:
            for message in consumer:
                message.reject("no") if message.id == sent.id else message.ack()
                if message.id == sent.id:
                    break
            consumer.flush()
    tern("dead", "resend", group, "--yes", url=url)

    found = tern("find", "--key", topic, "--json", url=url).json()
    groups = tern("group", "list", topic, "--json", url=url).json()

    places = {one["lane"]: one["sequence"] for one in found}
    assert places["topic"] == 1 and places[f"private {group}"] == 0
    assert {one["app"] for one in found} == {"shop"}
    assert {one["lane"] for one in groups} == {"topic", "private"}
    assert "shop" in tern("browse", topic, "--wide", url=url).out
    [line] = [x for x in tern("group", "list", topic, url=url).out.splitlines() if "private" in x]
    assert group in line


def test_status_is_the_cluster_on_one_page(node_factory: NodeFactory) -> None:
    node = node_factory()
    tern("send", "orders", "a", "b", url=node.url)
    tern("group", "create", "orders", "g", url=node.url)

    found = tern("status", "--json", url=node.url).json()

    assert (found["ok"], found["topics"], found["groups"], found["ready"]) == (True, 1, 1, 2)
    assert [one["kind"] for one in found["servers"]] == ["meta", "broker", "delay"]
    assert "2 ready" in tern("status", url=node.url).out


def test_the_shell_completes_commands_and_options() -> None:
    def completed(line: str) -> str:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        environment = clean_environment({**words, "_TERN_COMPLETE": "complete_bash"})
        ran = subprocess.run(
            COMMAND, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        return ran.stdout

    assert "topic" in completed("tern top").split()
    assert "--keep" in completed("tern topic set --k").split()


def test_ctrl_c_while_everything_is_imported_is_no_traceback(tmp_path: Path) -> None:
    """The moment is in the midst of numpy's import: a module that waits there."""
    (tmp_path / "numpy").mkdir()
    mark = tmp_path / "mark"
    waits = f"import pathlib, time\npathlib.Path({str(mark)!r}).touch()\ntime.sleep(60)\n"
    (tmp_path / "numpy" / "__init__.py").write_text(waits)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "-m", "tern_start", "topic", "list"],
        env=clean_environment({"PYTHONPATH": path}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_until(mark.exists, "it imports")

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)

    assert (process.returncode, out, err) == (130, b"", b"")
