"""How results are shown."""

import re
import sys
from datetime import UTC, datetime, timedelta, timezone
from subprocess import PIPE, Popen

import pytest

from ternmq.cli.messages.consume import BodyFormat, render
from ternmq.cli.terminal.output import (
    UNREADABLE,
    cut_widths,
    message_fields,
    plain,
    preview,
    readable,
    show_facts,
    show_json,
    show_table,
    shown_body,
    size,
    utc,
)
from ternmq.core.errors import Corrupt
from ternmq.wire.messages.groups import Start
from ternmq.wire.messages.pull import Join


def test_times_are_utc_to_the_millisecond() -> None:
    at = datetime(2025, 1, 31, 14, 0, 0, 5_000, tzinfo=timezone(timedelta(hours=2)))

    assert utc(at) == "2025-01-31T12:00:00.005Z"
    assert utc(1_738_324_800_000) == "2025-01-31T12:00:00.000Z"


def test_records_become_objects_with_named_fields() -> None:
    join = Join(group="g", topics=["a"], start=Start(at="time", value=5))

    shown = plain([join])[0]
    assert list(shown) == list(Join.__struct_fields__)
    assert (shown["topics"], shown["start"]) == (["a"], {"at": "time", "value": 5})


def test_bytes_and_times_can_be_shown_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    show_json(
        {"a": b"text", "b": b"\xff", "at": datetime(2025, 1, 1, tzinfo=UTC), "c": "ä"}, indent=None
    )

    assert capsys.readouterr().out == (
        '{"a": "text", "b": "/w==", "at": "2025-01-01T00:00:00.000Z", "c": "ä"}\n'
    )


def test_a_table_in_a_pipe_is_aligned_and_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    show_table(["topic", "#id", "key"], [("a", 5, None), (long, 12345, "k")])

    assert capsys.readouterr().out.splitlines() == [
        f"topic{' ' * 295}     id  key",
        f"a{' ' * 299}      5  -",
        f"{long}  12345  k",
    ]


def test_facts_are_one_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    show_facts({"name": "a", "created": datetime(2025, 1, 1, tzinfo=UTC)})

    assert capsys.readouterr().out == "name     a\ncreated  2025-01-01T00:00:00.000Z\n"


def test_a_preview_is_one_short_line_that_cannot_harm_a_terminal() -> None:
    assert preview(b"two\nlines\x1b[31m\xff") == "two\\nlines\\x1b[31m\\xff"
    assert len(preview(b"x" * 1_000)) == 60
    assert preview("äöü".encode()) == "äöü"


def test_sizes_are_shown_for_people() -> None:
    assert [size(0), size(1_536), size(5 * 2**20), size(3 * 2**30)] == [
        "0 B",
        "1.5 KiB",
        "5.0 MiB",
        "3.0 GiB",
    ]


def test_a_time_that_no_calendar_has_is_shown_as_the_nearest() -> None:
    assert utc(10**17) == "9999-12-31T23:59:59.999Z"
    assert utc(-(10**17)) == "0001-01-01T00:00:00.000Z"


@pytest.mark.parametrize("lines", [1, 100_000], ids=["in the buffer", "while writing"])
def test_a_reader_that_leaves_is_no_failure_to_talk_about(lines: int) -> None:
    """`tern browse | head` ends as `tern consume | head`: 141, without a word."""
    script = (
        "import sys, typer\n"
        "from ternmq.cli import main\n"
        "from ternmq.cli.terminal.output import say\n"
        "@main.app.command()\n"
        "def chatter() -> None:\n"
        "    sys.stdin.readline()\n"
        f"    for _ in range({lines}): say('x' * 50)\n"
        "sys.argv = ['tern', 'chatter']\n"
        "main.run()\n"
    )
    with Popen([sys.executable, "-c", script], stdin=PIPE, stdout=PIPE, stderr=PIPE) as chatter:
        assert chatter.stdin and chatter.stdout and chatter.stderr
        chatter.stdout.close()  # Before a word was said.
        chatter.stdin.write(b"go\n")
        chatter.stdin.close()
        assert chatter.wait(60) == 141
        assert chatter.stderr.read() == b""


def test_columns_give_way_from_the_widest_on() -> None:
    assert cut_widths([5, 10, 40], 100) == [5, 10, 40]
    assert cut_widths([5, 10, 40], 40) == [5, 10, 25]
    assert cut_widths([5, 30, 40], 45) == [5, 20, 20]
    assert cut_widths([10, 10, 10], 3) == [6, 6, 6], "but something of each stays"
    assert cut_widths([], 10) == []


def test_a_table_on_a_narrow_terminal_is_cut_and_never_wrapped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    show_table(["group", "state", "#lag"], [("main", "lost its disk: " + "x" * 250, 12_345)])

    drawn = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    lines = [line for line in drawn.splitlines() if line.strip()]
    assert len(lines) == 3, "head, rule, row"
    assert all(len(line) <= 60 for line in lines)
    assert "main" in lines[2] and "…" in lines[2] and "12345" in lines[2]


def test_where_nothing_of_a_table_could_be_read_each_row_is_a_block(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    numbers, values = [f"#number {at}" for at in range(8)], [10**5 + at for at in range(8)]
    show_table(["topic", *numbers], [("order.created", *values), ("x" * 100, *values)])

    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["topic     order.created", "number 0  100000", "number 1  100001"]
    assert lines[9] == "" and lines[10].endswith("x…") and len(lines[10]) == 60
    assert len(lines) == 19


class Damaged:
    """A message of which not everything can be read."""

    id, topic, sequence, broker_group, attempt = "i", "t", 7, "main", 1
    stored_at = born_at = datetime(2025, 1, 1, tzinfo=UTC)
    app, tag, order_key, properties = "shop", None, None, {"n": b"\xff"}

    @property
    def key(self) -> str:
        raise Corrupt("a name is not UTF-8")

    @property
    def body(self) -> bytes:
        raise Corrupt("does not decompress")


def test_a_damaged_message_is_shown_as_far_as_it_can_be_read() -> None:
    fields = message_fields(Damaged())

    assert (fields["key"], fields["unreadable"]) == (None, ["key", "body"])
    assert (fields["app"], fields["sequence"], fields["properties"]) == ("shop", 7, {"n": "/w=="})
    assert "body" not in fields
    assert (readable(Damaged(), "key"), shown_body(Damaged())) == (UNREADABLE, UNREADABLE)
    for form in BodyFormat:
        render(Damaged(), form)
