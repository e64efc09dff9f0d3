"""`tern send`, `consume`, `browse`, `ledger`, `bench` and `doctor` against a real node."""

import base64
import signal
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

from tests.integration.processes import COMMAND, Node, clean_environment, tern
from tests.waiting import wait_until


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid4().hex[:12]}"


def test_what_is_sent_comes_out_with_everything_that_was_said(
    shared_node: Node, topic: str
) -> None:
    url = shared_node.url
    extras = ["--key", "k1", "--tag", "vip", "--property", "color=red", "--property", "amount:=12"]
    sent = tern("send", topic, "hello", *extras, "--json", url=url).json()

    (got,) = tern("consume", topic, "-g", "g", "-n", "1", "--json", url=url).json_lines()

    assert (sent["count"], sent["sequence"]) == (1, 0)
    assert got["id"] == sent["id"]
    assert (got["body"], got["key"], got["tag"]) == ("hello", "k1", "vip")
    assert got["properties"] == {"color": "red", "amount": 12}
    assert (got["sequence"], got["attempt"], got["stored_at"]) == (0, 1, sent["stored_at"])
    assert got["stored_at"].endswith("Z")


def test_no_key_and_an_empty_key_differ_and_an_empty_body_is_allowed(
    shared_node: Node, topic: str
) -> None:
    tern("send", topic, "", url=shared_node.url)
    tern("send", topic, "", "--key", "", url=shared_node.url)

    got = tern("browse", topic, "--json", url=shared_node.url).json_lines()

    assert [(one["key"], one["body"]) for one in got] == [(None, ""), ("", "")]


def test_bodies_come_from_arguments_files_and_lines(
    shared_node: Node, topic: str, tmp_path: Path
) -> None:
    url = shared_node.url
    file = tmp_path / "body"
    file.write_bytes(b"line\nline\xff")
    tern("send", topic, "a", "b", "--count", "2", url=url)
    tern("send", topic, "--file", str(file), url=url)
    tern("send", topic, url=url, stdin=b"whole\nstdin\n")
    summary = tern("send", topic, "--lines", "--json", url=url, stdin=b"1\n\n3").json()
    tern("send", topic, "--lines", "--file", str(file), "--key", "k", url=url)

    got = tern("browse", topic, "--from", "earliest", "--json", url=url).json_lines()

    assert [one.get("body") for one in got[:4]] == ["a", "b", "a", "b"]
    assert base64.b64decode(got[4]["body_base64"]) == b"line\nline\xff"
    assert [one.get("body") for one in got[5:]] == ["whole\nstdin\n", "1", "", "3", "line", None]
    assert summary["count"] == 3
    assert [one["key"] for one in got[-2:]] == ["k", "k"]


def test_many_lines_arrive_in_order(shared_node: Node, topic: str) -> None:
    lines = "".join(f"{number}\n" for number in range(25_000))

    sent = tern("send", topic, "--lines", url=shared_node.url, stdin=lines.encode())
    got = tern("consume", topic, "-g", "g", "-n", "25000", url=shared_node.url)

    assert sent.out.startswith(f"25000 messages  {topic}  sequences 0 to 24999")
    assert got.out == lines


def test_a_consumer_follows_until_it_is_interrupted(shared_node: Node, topic: str) -> None:
    url = shared_node.url
    follower = subprocess.Popen(
        [*COMMAND, "consume", topic, "--group", "g", "--url", url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )
    assert follower.stdout is not None
    try:
        for body in ("one", "two"):
            tern("send", topic, body, url=url)
            assert follower.stdout.readline() == f"{body}\n".encode()
        wait_until(lambda: acked(url, topic) == 2, "both acks")
    finally:
        follower.send_signal(signal.SIGINT)
        _, err = follower.communicate(timeout=10)

    assert follower.returncode == 130
    assert b"Traceback" not in err


def acked(url: str, topic: str) -> int:
    return sum(line["acked"] for line in tern("ledger", topic, "--json", url=url).json())


def test_without_ack_everything_comes_again(shared_node: Node, topic: str) -> None:
    url = shared_node.url
    tern("send", topic, *"abc", url=url)

    looked = tern("consume", topic, "-g", "g", "-n", "2", "--no-ack", url=url)
    consumed = tern("consume", topic, "-g", "g", "--no-follow", url=url)

    assert looked.out == "a\nb\n"
    assert "2 messages shown, not acked" in looked.err
    assert sorted(consumed.out.split()) == ["a", "b", "c"]


def test_what_was_not_asked_for_is_left_for_the_next(shared_node: Node, topic: str) -> None:
    url = shared_node.url
    tern("send", topic, *"abcd", url=url)

    outputs = [tern("consume", topic, "-g", "g", "-n", "2", url=url).out for _ in range(2)]

    assert outputs == ["a\nb\n", "c\nd\n"]


def test_a_new_group_starts_where_it_is_told(shared_node: Node, topic: str) -> None:
    url = shared_node.url
    tern("send", topic, "old", url=url)
    receipt = tern("send", topic, "new", "--json", url=url).json()

    latest = tern("consume", topic, "-g", "late", "--from", "latest", "--no-follow", url=url)
    second = tern("consume", topic, "-g", "second", "--from", "1", "--no-follow", url=url)
    timed = tern(
        "consume", topic, "-g", "timed", "--from", receipt["stored_at"], "--no-follow", url=url
    )

    assert latest.out == ""
    assert second.out == "new\n"
    assert timed.out == "new\n"


def test_bodies_can_be_written_raw(shared_node: Node, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "body"
    file.write_bytes(bytes(range(256)))
    tern("send", topic, "--file", str(file), url=shared_node.url)

    raw = subprocess.run(
        [*COMMAND, "consume", topic, "-g", "g", "-n", "1", "--format", "raw"],
        capture_output=True,
        env=clean_environment({"TERN_URL": shared_node.url}),
        timeout=60,
        check=True,
    )

    assert raw.stdout == bytes(range(256))


def test_a_reader_that_leaves_is_no_stack_trace(shared_node: Node, topic: str) -> None:
    tern("send", topic, "x" * 1_000, "--count", "5000", url=shared_node.url)

    follower = subprocess.Popen(
        [*COMMAND, "consume", topic, "--group", "g", "--url", shared_node.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )
    assert follower.stdout is not None
    follower.stdout.read(10)
    follower.stdout.close()
    assert follower.stderr is not None
    err = follower.stderr.read()
    follower.stderr.close()

    assert follower.wait(20) == 141
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err


def test_browsing_shows_the_last_ones_and_changes_nothing(shared_node: Node, topic: str) -> None:
    url = shared_node.url
    tern("send", topic, *"abcde", url=url)

    last = tern("browse", topic, "--count", "2", "--json", url=url).json_lines()
    table = tern("browse", topic, "--from", "1", "--count", "2", url=url).out.splitlines()

    assert [one["body"] for one in last] == ["d", "e"]
    assert table[0].split() == ["sequence", "stored", "id", "key", "tag", "size", "body"]
    assert [line.split()[-1] for line in table[1:]] == ["b", "c"]
    assert tern("group", "list", topic, "--json", url=url).json() == []


def test_the_ledger_adds_up(shared_node: Node, topic: str) -> None:
    url = shared_node.url
    tern("send", topic, *"abcde", url=url)
    tern("consume", topic, "-g", "g", "-n", "3", url=url)

    (line,) = tern("ledger", topic, "--json", url=url).json()
    table = tern("ledger", topic, "g", url=url).out

    assert (line["total"], line["acked"], line["ready"], line["sum"]) == (5, 3, 2, 5)
    assert table.splitlines()[1].split()[-1] == "yes"


@pytest.mark.parametrize("mode", ["publish", "send", "consume", "latency"])
def test_the_bench_runs_and_cleans_up(shared_node: Node, mode: str) -> None:
    url = shared_node.url
    count = {"publish": 20_000, "consume": 20_000, "send": 500, "latency": 100}[mode]

    result = tern("bench", mode, "--count", str(count), "--json", url=url).json()

    assert result["messages"] == count
    assert result["rate"] > 0
    assert result["p99_ms"] >= result["p50_ms"] > 0
    names = [one["name"] for one in tern("topic", "list", "--json", url=url).json()]
    assert not [name for name in names if name.startswith("tern-bench")]


def test_the_doctor_looks_at_everything(shared_node: Node) -> None:
    """The machine's own disk may be nearly full, which is not this test's business."""
    report = tern("doctor", "--json", url=shared_node.url, code=None).json()

    assert [one["what"] for one in report] == [
        "meta port",
        "registry",
        "clock",
        "routes",
        "advertised address of main",
        "advertised address of delay server main",
        "broker main",
        "disk of main",
        "delay servers",
        "delay server main",
        "disk of delay server main",
        "clock of delay server main",
    ]
    assert [
        one for one in report if one["level"] != "ok" and not one["what"].startswith("disk")
    ] == []


def test_the_doctor_fails_and_says_what_to_do_when_nobody_listens() -> None:
    found = tern("doctor", url="tern://127.0.0.1:1", code=1)

    assert found.out.startswith("fail  meta port: 127.0.0.1:1")
    assert "tern up" in found.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["send", "t", "x"],
        ["consume", "t", "--group", "g", "--no-follow"],
        ["browse", "t"],
        ["topic", "list"],
        ["group", "list"],
        ["ledger"],
        ["bench"],
    ],
)
def test_a_node_that_is_not_there_is_one_clear_line(arguments: list[str]) -> None:
    failed = tern(*arguments, "--url", "tern://127.0.0.1:1", code=1)

    assert failed.out == ""
    assert failed.err.splitlines()[-1].startswith("error: ")
    assert "127.0.0.1:1" in failed.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["send", "bad topic", "x"], "cannot be the name of a topic"),
        (["send", "t", "x", "--property", "red"], "is not a property"),
        (["send", "t", "--file", "/nowhere/at/all"], "cannot read /nowhere/at/all"),
        (["consume", "t", "--group", "bad group"], "cannot be the name of a group"),
        (["consume", "t", "--group", "g", "--from", "noon"], "is not a place to start"),
        (["browse", "t", "--from", "noon"], "is not a place to start"),
        (["topic", "list", "--url", "http://x"], "is not a TernMQ URL"),
    ],
)
def test_what_can_never_work_is_one_clear_line(
    shared_node: Node, arguments: list[str], said: str
) -> None:
    refused = tern(*arguments, url=shared_node.url, code=2)

    assert said in refused.err
    assert refused.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["nonsense"], ["send"], ["send", "t", "x", "--count", "0"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    assert tern(*arguments, code=2).out == ""


@pytest.mark.parametrize(
    "command",
    ["up", "topic", "group", "send", "consume", "browse", "ledger", "bench", "doctor"],
)
def test_every_command_has_help(command: str) -> None:
    assert "Usage" in tern(command, "--help").out
