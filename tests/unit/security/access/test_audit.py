"""The audit log: one object a line, sums for crowds, a file for its owner only."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from ternmq.security.access import audit as audit_module
from ternmq.security.access.audit import FILES_KEPT, OF_ONE_MAX, TEXT_SIZE_MAX, AuditLog
from ternmq.security.access.audit_sums import WINDOW_MS
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
    clock.now_ms += WINDOW_MS
    audit.note_summed("login", who="", address="10.0.0.1", result="unauthorized")
    await audit.close()

    assert [(line["from"], line.get("times")) for line in lines(path)] == [
        ("10.0.0.1", None),
        ("10.0.0.2", None),
        ("10.0.0.1", 499),
        ("10.0.0.1", None),
    ]


async def test_what_was_noted_last_is_on_disk_after_closing(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = AuditLog(path, server="meta", now_ms=Moment())
    for number in range(100):
        audit.note("login", who=str(number), address="", result="ok")
    await audit.close()

    assert [line["who"] for line in lines(path)] == [str(number) for number in range(100)]


async def test_a_sum_is_on_disk_though_nobody_comes_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "LOOK_AT_SUMS_S", 0.01)
    path, clock = tmp_path / "audit.log", Moment()
    audit = AuditLog(path, server="meta", now_ms=clock)
    for user in ("admin", "admin", "admin", "shop"):
        audit.note_summed("login", who="", address="10.0.0.1", result="no", user=user)
    clock.now_ms += WINDOW_MS
    await until(lambda: path.exists() and len(lines(path)) == 3)

    assert [(line["user"], line.get("times")) for line in lines(path)] == [
        ("admin", None),
        ("shop", None),
        ("admin", 2),
    ]
    await audit.close()


async def test_closing_writes_sums_that_have_not_ended(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = AuditLog(path, server="meta", now_ms=Moment())
    for _ in range(5):
        audit.note_summed("login", who="", address="10.0.0.1", result="no", user="admin")
    await audit.close()

    assert [line.get("times") for line in lines(path)] == [None, 4]


async def test_texts_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = AuditLog(path, server="meta", now_ms=Moment())
    audit.note("x", who="a", address="", result="r" * 10_000, about=["topic:" + "x" * 10_000] * 900)
    await audit.close()

    assert path.stat().st_size < 20_000
    assert len(lines(path)[0]["result"]) == TEXT_SIZE_MAX + 1


async def test_who_is_busy_does_not_push_out_what_others_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "FILE_SIZE_MAX", 300_000)
    path = tmp_path / "audit.log"
    audit = AuditLog(path, server="meta", now_ms=Moment())
    audit.note("grant", who="eve", address="", result="allowed", command="GRANT_SET")
    for number in range(100_000):
        audit.note("operate", who="eve", address=f"h:{number}", result="ok", command="GROUP_KEYS")
        if number % 10_000 == 0:
            await until(lambda: not audit._lines)
    await audit.close()

    found = lines(path)
    assert found[0]["command"] == "GRANT_SET"
    assert len(found) == 1 + OF_ONE_MAX + 1
    assert found[-1]["times"] == 100_000 - OF_ONE_MAX


async def test_several_files_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "FILE_SIZE_MAX", 10)
    path = tmp_path / "audit.log"
    for number in range(FILES_KEPT + 2):
        audit = AuditLog(path, server="meta", now_ms=Moment())
        audit.note("login", who=str(number), address="", result="ok")
        await audit.close()

    kept = [tmp_path / f"audit.log.{number}" for number in range(1, FILES_KEPT)]
    assert [lines(each)[0]["who"] for each in kept] == ["9", "8", "7", "6", "5", "4", "3"]
    assert not (tmp_path / f"audit.log.{FILES_KEPT}").exists()


async def test_lines_that_wait_are_bounded_in_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "LINES_SIZE_MAX", 5_000)
    path = tmp_path / "audit.log"
    audit = AuditLog(path, server="meta", now_ms=Moment())
    for number in range(1_000):
        audit.note("login", who=str(number), address="", result="ok")
    await audit.close()

    assert 4_000 < path.stat().st_size <= 5_100
