"""The bar of a Spark job counts what the job knows, else Spark's tasks (P7)."""

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ternmq.cli.jobs import job_bar
from ternmq.cli.jobs.job_bar import TaskCount
from tests.waiting import wait_until


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Tracker:
    """Stage 1 has 4 tasks; each look finds one more done; then stage 2 has 2."""

    def __init__(self) -> None:
        self.looks = 0

    def getActiveStageIds(self) -> list[int]:  # noqa: N802
        self.looks += 1
        return [1] if self.looks <= 4 else [2]

    def getStageInfo(self, stage: int) -> Any:  # noqa: N802
        if stage == 1:
            return SimpleNamespace(numCompletedTasks=self.looks, numTasks=4)
        return SimpleNamespace(numCompletedTasks=0, numTasks=2)


def session(tracker: Tracker) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))


def look(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Called by the test itself: pytest has its own stderr after the fixtures."""
    monkeypatch.setattr(job_bar, "REFRESH_S", 0.02)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    return shown


def test_without_a_total_it_counts_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = look(monkeypatch)
    tracker = Tracker()
    with job_bar.job_bar(session(tracker), "trace"):
        wait_until(lambda: "4/6" in terminal.getvalue())
    assert "trace" in terminal.getvalue() and "4/6" in terminal.getvalue()


def test_with_a_total_it_counts_that_and_shows_tasks_beside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = look(monkeypatch)
    tracker = Tracker()
    with job_bar.job_bar(session(tracker), "archive", 700) as told:
        told(350)
        wait_until(lambda: "4 of 6 Spark tasks" in terminal.getvalue())
    assert "350/700" in terminal.getvalue() and "4 of 6 Spark tasks" in terminal.getvalue()


def test_nothing_is_shown_or_asked_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    tracker = Tracker()
    with job_bar.job_bar(session(tracker), "trace") as told:
        told(1)
    assert (tracker.looks, capsys.readouterr().err) == (0, "")


def test_stages_that_are_over_are_done() -> None:
    count = TaskCount()
    count.saw(1, 1, 4)
    count.over({1})
    assert (count.done, count.tasks) == (1, 4)
    count.saw(2, 0, 3)
    count.over({2})
    assert (count.done, count.tasks) == (4, 7)
