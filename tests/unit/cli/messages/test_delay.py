"""What `tern delay` makes of its flags and of what it found."""

import pytest

from ternmq.cli.main import run
from ternmq.cli.messages.delay import (
    LINES_MAX,
    By,
    DelayOptions,
    _change,
    _choice,
    ahead,
    chart_rows,
)
from ternmq.core.errors import BadRequest
from ternmq.core.units import HOUR_MS
from ternmq.wire.messages.delays import DelayCounts

START = 1_798_131_600_000  # 2026-12-24T17:00Z


def test_an_hour_is_from_its_start_to_the_next() -> None:
    choice = _choice(None, "", "", None, None, "2026-12-24T17Z")

    assert choice.start is not None
    assert choice.end is not None
    assert (choice.end - choice.start).total_seconds() == 3600
    with pytest.raises(BadRequest, match="not both"):
        _choice(None, "", "", "2026-12-24", None, "2026-12-24T17Z")


@pytest.mark.parametrize("dry_run", [True, False])
def test_ids_and_a_choice_do_not_go_together(dry_run: bool) -> None:
    """A message of another topic would be cancelled, though --dry-run does not show it."""
    how = DelayOptions(dry_run=dry_run, yes=True, url="tern://127.0.0.1:1", as_json=False)
    for choice in (
        _choice(["0" * 26], "", "other", None, None),
        _choice(["0" * 26], "key", "", None, None),
        _choice(["0" * 26], "", "", None, None, "2026-12-24T17Z"),
    ):
        with pytest.raises(BadRequest, match="not both"):
            _change("cancel", choice, {}, how)


def test_hours_become_days_when_there_are_many() -> None:
    few = DelayCounts(hours=[(START, 5), (START + HOUR_MS, 7)], hour_ms=HOUR_MS)
    many = DelayCounts(
        hours=[(START + at * HOUR_MS, 1) for at in range(LINES_MAX + 1)], hour_ms=HOUR_MS
    )

    assert chart_rows(few, None) == [("2026-12-24T17:00Z", 5), ("2026-12-24T18:00Z", 7)]
    assert chart_rows(few, By.DAY) == [("2026-12-24", 12)]
    assert chart_rows(many, None) == [
        ("2026-12-24", 7),
        ("2026-12-25", 24),
        ("2026-12-26", 24),
        ("2026-12-27", 18),
    ]


def test_how_far_away_is_told_in_two_units() -> None:
    assert ahead(-1) == ahead(0.5) == "now"
    assert ahead(59) == "59s"
    assert ahead(725) == "12m 5s"
    assert ahead(3 * 86_400 + 4 * 3600 + 5) == "3d 4h"
    assert ahead(86_400) == "1d 0h"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("send t x --at 2027-01-01T00:00", "has no time zone"),
        ("send t x --delay -5", "is not a duration"),
        ("delay cancel", "cancel what?"),
        ("delay list --hour nonsense", "is not a time"),
        ("delay find", "find what?"),
        ("delay cancel nonsense --topic t", "not both"),
        ("delay reschedule x --at 2027-01-01T00:00", "has no time zone"),
        ("delay reschedule x --at 1798131600", "is not a time"),
        ("delay reschedule x", "reschedule to when?"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["tern", *arguments.split()])

    with pytest.raises(SystemExit) as ended:
        run()

    shown = capsys.readouterr()
    assert ended.value.code == 2
    assert said in shown.err
    assert (shown.out, shown.err.count("\n")) == ("", 1)
