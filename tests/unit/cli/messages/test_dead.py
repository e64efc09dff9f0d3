"""Which dead letters are meant, and what is said about each (R13, D10)."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from ternmq.cli.messages import dead
from ternmq.cli.messages.letter_source import LetterSource
from ternmq.cli.topics.group_reset import _beyond
from ternmq.client.admin.merge_answers import ResetDone
from ternmq.core.errors import BadRequest, Unavailable
from ternmq.wire.messages.dead_letters import DeadDone

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
    letter = SimpleNamespace(id="X")

    found = [h for h in (1, 3, 5) if choice.takes(letter, {"%died_at": NOW_MS - h * HOUR_MS})]

    assert found == hours_ago


@pytest.mark.parametrize("text", ["earliest", "17", "soon"])
def test_what_is_no_time_is_told_what_is(text: str) -> None:
    with pytest.raises(BadRequest, match="how long ago"):
        dead._choice(None, None, None, text)


class Scripted(LetterSource):
    """A box whose broker answers what it is told to."""

    answers: ClassVar[list[Any]] = []

    async def resend(self, mq: object, ranges: object, broker_group: str) -> DeadDone:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, DeadDone)
        return answer


async def test_every_letter_gets_a_result_of_its_own() -> None:
    """D10: honest: one was sent, one could not, and one was in somebody else's hands."""
    box = Scripted("g")
    box.answers[:] = [
        DeadDone(handled=1, failed=[]),
        DeadDone(handled=0, failed=["2: topic 'gone' does not exist"]),
        DeadDone(handled=0, failed=[], gone=[(3, 4)]),
        Unavailable("the broker is away"),
    ]
    ids = {("east", 1): "A", ("east", 2): "B", ("east", 3): "C", ("east", 4): "D"}

    done = await dead._do(None, box, "resend", ids, rate=10)  # type: ignore[arg-type]

    assert done["results"] == [
        {"id": "A", "result": "sent again"},
        {"id": "B", "result": "topic 'gone' does not exist"},
        {"id": "C", "result": "handled meanwhile"},
        {"id": "D", "result": "the broker is away"},
    ]
    assert done["failed"] == ["B: topic 'gone' does not exist", "D: the broker is away"]
    assert (done["chosen"], done["handled"]) == (4, 1)


async def test_letters_that_go_together_have_their_own_results_too() -> None:
    """D10: somebody else handled one of three meanwhile; the other two were sent by us."""
    box = Scripted("g")
    box.answers[:] = [DeadDone(handled=2, failed=[], gone=[(2, 3)])]

    ids = {("east", 1): "A", ("east", 2): "B", ("east", 3): "C"}

    done = await dead._do(None, box, "resend", ids, rate=1_000)  # type: ignore[arg-type]

    assert [one["result"] for one in done["results"]] == [
        "sent again",
        "handled meanwhile",
        "sent again",
    ]


async def test_letters_of_several_broker_groups_are_handled_where_they_lie() -> None:
    """The same sequence is another letter on another broker group."""
    box = Scripted("g")
    box.answers[:] = [DeadDone(handled=1, failed=[]), DeadDone(handled=0, failed=["7: no"])]

    ids = {("east", 7): "A", ("west", 7): "B"}
    done = await dead._do(None, box, "resend", ids, rate=1_000)  # type: ignore[arg-type]

    assert done["results"] == [{"id": "A", "result": "sent again"}, {"id": "B", "result": "no"}]


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


def test_an_id_in_hex_is_found_in_whatever_case() -> None:
    """Ids of an outbox are shown in lower case."""
    choice = dead._choice(["6f72"], None, None, None)

    assert choice.takes(SimpleNamespace(id="6f72"), {})
    assert choice.missing(["6f72"]) == []


def test_a_letter_that_was_sent_again_and_died_again_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R13: the loop guard; a dry run names what it means."""
    again = {"%resent": 2, "%died_at": NOW_MS, "%topic": "orders"}
    once = {"%died_at": NOW_MS, "%topic": "orders"}

    def visit_two(
        url: str, source: LetterSource, choice: dead.DeadChoice, visit: dead.Visit
    ) -> dict[str, str]:
        visit(SimpleNamespace(id="A", sequence=1, broker_group="east"), again)
        visit(SimpleNamespace(id="B", sequence=2, broker_group="east"), once)
        return {}

    monkeypatch.setattr(dead, "_visit", visit_two)

    ran = CliRunner().invoke(dead.app, ["resend", "g", "--dry-run"])

    assert "1 of them were sent again before, and died again" in ran.output
    assert "A\nB\n2 chosen, 0 sent again, 0 failed" in ran.output


class Letter:
    """Counts how many of its kind there are, and were at most."""

    alive: ClassVar[int] = 0
    most: ClassVar[int] = 0

    def __init__(self, sequence: int) -> None:
        self.id, self.sequence, self.broker_group = f"ID-{sequence}", sequence, "east"
        self.properties = {"%died_at": NOW_MS, "%topic": "orders"}
        Letter.alive += 1
        Letter.most = max(Letter.most, Letter.alive)

    def __del__(self) -> None:
        Letter.alive -= 1


async def read_letters(topic: str, *, start: int, end: int, broker_group: str) -> Any:
    for sequence in range(start, end):
        yield Letter(sequence)


async def groups() -> list[str]:
    return ["east"]


async def all_open(group: str, broker_group: str) -> list[tuple[int, int]]:
    return [(0, 400), (500, 1_000)]


@pytest.mark.parametrize("what", ["shown", "chosen"])
async def test_of_many_letters_only_what_is_shown_or_their_ids_are_kept(what: str) -> None:
    admin = SimpleNamespace(broker_groups=groups, open_dead_letters=all_open)
    mq: Any = SimpleNamespace(admin=admin, read=read_letters)
    Letter.most = Letter.alive = 0
    shown, chosen = dead.Shown(10), dead.DeadChosen()
    visit = shown.add if what == "shown" else chosen.add

    assert (
        await dead._visit_all(mq, LetterSource("g"), dead._choice(None, None, None, None), visit)
        == {}
    )

    assert shown.total + len(chosen.ids) == 900
    assert Letter.most <= 13
    assert chosen.ids.get(("east", 999), "ID-999") == "ID-999"


def test_a_reset_to_where_nothing_is_yet_is_pointed_out() -> None:
    now = datetime.now(UTC)
    done = ResetDone(from_sequence=0, to_sequence=5, again=0, skipped=5)

    assert _beyond(99, done, now)
    assert _beyond(now + timedelta(days=1), done, now)
    assert not _beyond(5, done, now)
    assert not _beyond("latest", done, now)
    assert not _beyond(now - timedelta(days=1), done, now)
