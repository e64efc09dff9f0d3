"""Which letters are meant, and what becomes of each (R13, D10)."""

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from ternmq.client.reading import letters
from ternmq.client.reading.letters import ChosenLetters, DeadLetterChoice, Letters
from ternmq.core.errors import BadRequest, Unavailable
from ternmq.wire.messages.dead_letters import DeadDone


class Scripted(Letters):
    """A box whose broker answers what it is told to."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    async def _order(self, verb: str, ranges: object, broker_group: str) -> DeadDone:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, DeadDone)
        return answer


def chosen(**ids: tuple[str, int]) -> ChosenLetters:
    return ChosenLetters({place: name for name, place in ids.items()})


async def test_every_letter_gets_a_result_of_its_own() -> None:
    """D10: honest: one was sent, one could not, and one was in somebody else's hands."""
    box = Scripted(
        DeadDone(handled=1, failed=[]),
        DeadDone(handled=0, failed=["2: topic 'gone' does not exist"]),
        DeadDone(handled=0, failed=[], gone=[(3, 4)]),
        Unavailable("the broker is away"),
    )
    four = chosen(A=("east", 1), B=("east", 2), C=("east", 3), D=("east", 4))
    told: list[int] = []

    done = await box.resend(
        four, rate=10, on_progress=lambda so_far: told.append(len(so_far.results))
    )

    assert done.results == [
        {"id": "A", "result": "sent again"},
        {"id": "B", "result": "topic 'gone' does not exist"},
        {"id": "C", "result": "handled meanwhile"},
        {"id": "D", "result": "the broker is away"},
    ]
    assert done.failed == ["B: topic 'gone' does not exist", "D: the broker is away"]
    assert (done.chosen, done.handled) == (4, 1)
    assert told == [1, 2, 3, 4], "who asked hears of every step"


async def test_letters_that_go_together_have_their_own_results_too() -> None:
    """D10: somebody else handled one of three meanwhile; the other two were sent by us."""
    box = Scripted(DeadDone(handled=2, failed=[], gone=[(2, 3)]))

    done = await box.resend(chosen(A=("east", 1), B=("east", 2), C=("east", 3)))

    results = [one["result"] for one in done.results]
    assert results == ["sent again", "handled meanwhile", "sent again"]


async def test_letters_of_several_broker_groups_are_handled_where_they_lie() -> None:
    """The same sequence is another letter on another broker group."""
    box = Scripted(DeadDone(handled=1, failed=[]), DeadDone(handled=0, failed=["7: no"]))

    done = await box.delete(chosen(A=("east", 7), B=("west", 7)))

    assert done.results == [{"id": "A", "result": "deleted"}, {"id": "B", "result": "no"}]


async def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(BadRequest, match="at least 1 a second"):
        await Scripted().resend(chosen(), rate=0)


def test_an_id_in_hex_is_found_in_whatever_case() -> None:
    """Ids of an outbox are shown in lower case."""
    choice = DeadLetterChoice(ids=["6f72"])

    assert choice.takes("6F72", {})
    assert choice.not_among(["6f72"]) == []
    assert choice.not_among(["other"]) == ["6F72"]


def test_letters_are_chosen_by_words_of_their_error_and_by_topic() -> None:
    choice = DeadLetterChoice(error="ACCOUNT", topic="orders")

    assert choice.takes("A", {"%error_text": "no account", "%topic": "orders"})
    assert not choice.takes("A", {"%error_text": "no account", "%topic": "other"})
    assert not choice.takes("A", {"%reason": "gone", "%topic": "orders"})


class Stored:
    """A letter that counts how many of its kind there are, and were at most."""

    alive: ClassVar[int] = 0
    most: ClassVar[int] = 0

    def __init__(self, sequence: int) -> None:
        self.id, self.sequence, self.broker_group = f"ID-{sequence}", sequence, "east"
        self.properties = {"%died_at": 5, "%topic": "orders"}
        Stored.alive += 1
        Stored.most = max(Stored.most, Stored.alive)

    def __del__(self) -> None:
        Stored.alive -= 1


async def read_letters(cluster: Any, topic: str, options: Any, config: Any) -> Any:
    for sequence in range(options["start"], options["end"]):
        yield Stored(sequence)


class TwoRanges(Letters):
    """A box with letters in two ranges."""

    def __init__(self) -> None:
        self._cluster: Any = None
        self._config: Any = None
        self._group, self._topic = "g", ""
        self._admin: Any = SimpleNamespace(broker_groups=self._groups)

    async def _groups(self) -> list[str]:
        return ["east"]

    async def _open_ranges(self, broker_group: str) -> list[tuple[int, int]]:
        return [(0, 400), (500, 1_000)]


async def test_of_many_letters_only_their_ids_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "Reader", read_letters)
    Stored.most = Stored.alive = 0

    found = await TwoRanges().choose()

    assert len(found.ids) == 900
    assert found.ids["east", 999] == "ID-999"
    assert Stored.most <= 3
