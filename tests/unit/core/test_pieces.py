"""Ranges against plain sets and dictionaries."""

from hypothesis import given
from hypothesis import strategies as st

from ternmq.core.pieces import PieceMap
from ternmq.core.ranges import RangeSet

spans = st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda s: (s[0], s[0] + s[1]))


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


@given(st.lists(st.tuples(st.integers(0, 3), spans), max_size=40))
def test_a_piece_map_is_a_dictionary(steps: list[tuple[int, tuple[int, int]]]) -> None:
    pieces: PieceMap[int] = PieceMap()
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


@given(st.lists(st.tuples(st.integers(1, 3), spans), max_size=20), st.integers(0, 50))
def test_taking_the_first_takes_the_lowest(
    steps: list[tuple[int, tuple[int, int]]], count: int
) -> None:
    pieces: PieceMap[int] = PieceMap((a, b, v) for v, (a, b) in steps)
    before = sorted(n for a, b, _ in pieces for n in range(a, b))

    taken = [n for a, b, _ in pieces.take_first(count) for n in range(a, b)]

    assert taken == before[:count]
    assert sorted(n for a, b, _ in pieces for n in range(a, b)) == before[count:]
