"""Which dead letters are meant, and what is said about each (R13, D10)."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from ternmq.cli.messages import dead
from ternmq.cli.topics.group_reset import _beyond
from ternmq.client.admin.merge_answers import ResetDone
from ternmq.client.reading.letters import Letter
from ternmq.core.errors import BadRequest

NOW_MS = int(datetime.now(UTC).timestamp() * 1000)
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("since", "until", "hours_ago"),
    [("2h", None, [1]), (None, "2h", [3, 5]), ("4h", "2h", [3]), (None, None, [1, 3, 5])],
)
def test_letters_are_chosen_by_when_they_died(
    since: str | None, until: str | None, hours_ago: list[int]
) -> None:
    choice = dead._choice(None, None, None, since, until)

    found = [h for h in (1, 3, 5) if choice.takes("X", {"%died_at": NOW_MS - h * HOUR_MS})]

    assert found == hours_ago


@pytest.mark.parametrize("text", ["earliest", "17", "soon"])
def test_what_is_no_time_is_told_what_is(text: str) -> None:
    with pytest.raises(BadRequest, match="how long ago"):
        dead._choice(None, None, None, text)


def test_what_a_silent_broker_group_has_is_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dead, "_visit", lambda url, box, choice, visit: {"west": "gone"})

    ran = CliRunner().invoke(dead.app, ["resend", "g", "--dry-run"])

    assert ran.exit_code == 1
    assert "error: broker group west does not answer, its part is missing: gone" in ran.output


def test_an_id_that_is_not_open_is_named_and_fails_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D10: whoever asks for one message by its id hears when nothing became of that."""
    monkeypatch.setattr(dead, "_visit", lambda url, box, choice, visit: {})

    ran = CliRunner().invoke(dead.app, ["delete", "g", "--id", "x-1", "--yes"])

    assert ran.exit_code == 1
    assert "failed: X-1: not among the open ones" in ran.output


def message(message_id: str, sequence: int) -> Any:
    return SimpleNamespace(id=message_id, sequence=sequence, broker_group="east")


def test_a_letter_that_was_sent_again_and_died_again_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R13: the loop guard; a dry run names what it means."""
    again = {"%resent": 2, "%died_at": NOW_MS, "%topic": "orders"}
    once = {"%died_at": NOW_MS, "%topic": "orders"}

    def visit_two(url: str, source: Any, choice: Any, visit: Any) -> dict[str, str]:
        visit(Letter(message("A", 1), again))
        visit(Letter(message("B", 2), once))
        return {}

    monkeypatch.setattr(dead, "_visit", visit_two)

    ran = CliRunner().invoke(dead.app, ["resend", "g", "--dry-run"])

    assert "1 of them were sent again before, and died again" in ran.output
    assert "A\nB\n2 chosen, 0 sent again, 0 failed" in ran.output


def test_a_reset_to_where_nothing_is_yet_is_pointed_out() -> None:
    now = datetime.now(UTC)
    done = ResetDone(from_sequence=0, to_sequence=5, again=0, skipped=5)

    assert _beyond(99, done, now)
    assert _beyond(now + timedelta(days=1), done, now)
    assert not _beyond(5, done, now)
    assert not _beyond("latest", done, now)
    assert not _beyond(now - timedelta(days=1), done, now)
