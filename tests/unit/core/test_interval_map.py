"""Ranges against plain sets and dictionaries."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.core import interval_map as pieces_module
from ternmq.core.interval_map import IntervalMap
from ternmq.core.range_set import RangeSet

spans = st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda s: (s[0], s[0] + s[1]))


@pytest.fixture(params=[4, 1024], autouse=True, scope="module")
def block_max(request: pytest.FixtureRequest) -> Iterator[None]:
    """Small blocks, so that a few pieces are several of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces_module, "BLOCK_MAX", request.param)
        yield


@given(st.lists(st.tuples(st.booleans(), spans), max_size=40))
def test_a_range_set_is_a_set(steps: list[tuple[bool, tuple[int, int]]]) -> None:
    ranges, plain = RangeSet(), set[int]()
    for adding, (first, end) in steps:
        numbers = set(range(first, end))
        if adding:
            assert ranges.add(first, end) == len(numbers - plain)
            plain |= numbers
        else:
            assert ranges.remove(first, end) == len(numbers & plain)
            plain -= numbers
        assert {n for a, b in ranges for n in range(a, b)} == plain
        assert ranges.count == len(plain)
        flat = [edge for span in ranges for edge in span]
        assert flat == sorted(set(flat)), "ranges must not touch"
        assert {n for a, b in ranges.gaps(0, 90) for n in range(a, b)} == set(range(90)) - plain
        assert [n in ranges for n in range(90)] == [n in plain for n in range(90)]
        for number in range(0, 90, 7):
            free = next(n for n in range(number, 100) if n not in plain)
            assert ranges.first_gap(number) == free
        assert {n for a, b in ranges.overlap(20, 50) for n in range(a, b)} == plain & set(
            range(20, 50)
        )


@given(st.lists(st.tuples(st.integers(0, 3), spans), max_size=40))
def test_a_piece_map_is_a_dictionary(steps: list[tuple[int, tuple[int, int]]]) -> None:
    pieces: IntervalMap[int] = IntervalMap()
    plain: dict[int, int] = {}
    for value, (first, end) in steps:
        if value:
            pieces.put(first, end, value)
            plain |= dict.fromkeys(range(first, end), value)
        else:
            taken = {n: v for a, b, v in pieces.cut(first, end) for n in range(a, b)}
            assert taken == {n: v for n, v in plain.items() if first <= n < end}
            for number in taken:
                del plain[number]
        assert {n: v for a, b, v in pieces for n in range(a, b)} == plain
        assert pieces.count == len(plain)
        assert len(pieces) == len(list(pieces))
        assert [pieces.get(n) for n in range(90)] == [plain.get(n) for n in range(90)]
        joined = list(pieces)
        for (_, end_a, value_a), (first_b, _, value_b) in pairwise(joined):
            assert end_a < first_b or value_a != value_b, "equal neighbours are one piece"
        inside = {n: v for a, b, v in pieces.overlap(20, 50) for n in range(a, b)}
        assert inside == {n: v for n, v in plain.items() if 20 <= n < 50}


@given(st.permutations(range(0, 120, 2)))
def test_a_million_single_rows_would_come_and_go_in_any_order(rows: list[int]) -> None:
    pieces: IntervalMap[str] = IntervalMap((row, row + 1, "waits") for row in rows)

    assert [first for first, _, _ in pieces] == sorted(rows)
    assert pieces.bounds() == (0, 119)
    for row in rows:
        assert pieces.cut(row, row + 1) == [(row, row + 1, "waits")]
    assert not len(pieces) and not list(pieces)


def test_a_run_of_pieces_goes_on_where_the_last_one_ended() -> None:
    pieces = IntervalMap([(at, at + 2, at) for at in range(0, 9_000, 3)])
    found: list[tuple[int, int, int]] = []
    at = 0
    while part := pieces.run(at, 700):
        assert len(part) <= 700
        found += part
        at = part[-1][1]

    assert found == list(pieces)
    assert pieces.run(1, 1) == [(1, 2, 0)], "cut where one begins in the middle"
    assert IntervalMap[int]().run(0, 5) == []
