"""Which letters are open: all, or the newest, however many were handled in between."""

import random

import pytest

from ternmq.broker.groups.lane import Lane
from ternmq.broker.operations.dead_letter_admin import open_letters


def a_lane(end: int, handled: list[int]) -> Lane:
    lane = Lane(0)
    lane.grow(end)
    for row in handled:
        lane.done.add(row, row + 1)
    return lane


def rows(ranges: list[tuple[int, int]]) -> list[int]:
    return [row for first, end in ranges for row in range(first, end)]


@pytest.mark.parametrize("seed", range(20))
def test_the_newest_are_the_last_of_all(seed: int) -> None:
    chance = random.Random(seed)
    end = chance.randrange(1, 300)
    handled = chance.sample(range(end), chance.randrange(end + 1))
    lane = a_lane(end, handled)
    every = [row for row in range(end) if row not in set(handled)]

    assert rows(open_letters(lane, 0).ranges) == every
    for newest in (1, 2, 7, 100, 10_000):
        found = open_letters(lane, newest)
        assert rows(found.ranges) == every[-newest:]
        assert found.open == len(every)


def test_a_page_of_a_million_of_which_every_second_is_handled_looks_at_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lane = a_lane(100_000, list(range(0, 100_000, 2)))
    asked: list[int] = []
    gaps = lane.done.gaps

    def counted(first: int, end: int) -> list[tuple[int, int]]:
        asked.append(end - first)
        return gaps(first, end)

    monkeypatch.setattr(type(lane.done), "gaps", lambda self, first, end: counted(first, end))

    assert len(open_letters(lane, 100).ranges) == 100
    assert sum(asked) <= 400, "not all of them"
