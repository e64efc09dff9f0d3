"""Lines of a check-up: the check, its result, and what to do about it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

import typer

from ternmq.cli.terminal.output import say, show_json


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One line of the report."""

    level: Level
    what: str
    found: str
    advice: str = ""


def show_report(findings: Sequence[CheckResult], *, as_json: bool) -> None:
    """All lines; one that failed makes the exit code 1."""
    if as_json:
        show_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            say(f"{finding.level.ljust(4)}  {finding.what}: {finding.found}")
            if finding.advice:
                say(f"      -> {finding.advice}")
    if any(finding.level is Level.FAIL for finding in findings):
        raise typer.Exit(1)
