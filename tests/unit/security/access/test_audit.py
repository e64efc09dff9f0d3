"""The audit log: one object a line, sums for crowds, a file for its owner only."""

import json
import stat
from pathlib import Path
from typing import Any

from ternmq.security.access.audit import SUMMED_S, AuditLog
from tests.waiting import until


class Moment:
    """Now, as the test says."""

    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def test_a_line_says_when_who_from_where_what_and_the_result(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = AuditLog(path, server="meta", now_ms=Moment())
    audit.note("manage", who="admin", address="10.0.0.1:5", result="allowed", about=["topic:a\n"])
    await until(path.exists)
    await audit.close()

    assert lines(path) == [
        {
            "at_ms": 1_000_000,
            "server": "meta",
            "event": "manage",
            "who": "admin",
            "from": "10.0.0.1:5",
            "result": "allowed",
            "about": ["topic:a\n"],
        }
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_what_comes_in_crowds_is_a_line_a_minute_with_its_number(tmp_path: Path) -> None:
    path, clock = tmp_path / "audit.log", Moment()
    audit = AuditLog(path, server="meta", now_ms=clock)
    for _ in range(500):
        audit.note_summed("login", who="", address="10.0.0.1", result="unauthorized")
    audit.note_summed("login", who="", address="10.0.0.2", result="unauthorized")
    clock.now_ms += int(SUMMED_S * 1000)
    audit.note_summed("login", who="", address="10.0.0.1", result="unauthorized")
    await audit.close()

    assert [(line["from"], line.get("before")) for line in lines(path)] == [
        ("10.0.0.1", None),
        ("10.0.0.2", None),
        ("10.0.0.1", 499),
    ]


async def test_what_was_noted_last_is_on_disk_after_closing(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = AuditLog(path, server="meta", now_ms=Moment())
    for number in range(100):
        audit.note("login", who=str(number), address="", result="ok")
    await audit.close()

    assert [line["who"] for line in lines(path)] == [str(number) for number in range(100)]
