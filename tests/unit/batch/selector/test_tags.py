"""The tag filter: what it reads, what it keeps, how cheaply it says no."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.batch.check import check_incoming, tag_bit
from ternmq.batch.encoder import Outgoing
from ternmq.batch.layout import Column, ColumnPart
from ternmq.batch.rows.cut import cut
from ternmq.batch.rows.runs import runs
from ternmq.batch.selector.tags import LENGTH_MAX, TAGS_MAX, TagFilter
from ternmq.batch.view import BatchView
from ternmq.core.errors import BadFilter, Corrupt
from tests.unit.batch.builders import a_batch

WORDS = ["a", "b", "vip", "é", "two words"]
tags = st.none() | st.sampled_from([*WORDS, ""])


def a_filter(text: str) -> TagFilter:
    found = TagFilter.parse(text)
    assert found is not None
    return found


def tagged(found: list[str | None]) -> bytearray:
    return a_batch([Outgoing(body=b"x", tag=tag) for tag in found], stamped=False)


def spread(ranges: list[tuple[int, int]]) -> list[int]:
    return [row for first, end in ranges for row in range(first, end)]


@pytest.mark.parametrize("text", ["*", " * ", "", "  "])
def test_everything_is_no_filter(text: str) -> None:
    assert TagFilter.parse(text) is None


@pytest.mark.parametrize("text", ["a || b", "b||a", "  b  ||a||a ", "a||b||a"])
def test_the_same_tags_are_the_same_filter(text: str) -> None:
    assert a_filter(text) == a_filter("a || b")
    assert a_filter(text).text == "a || b"
    assert a_filter(text) != a_filter("a")


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("||", 0, "missing"),
        ("a ||", 4, "missing"),
        ("|| a", 0, "missing"),
        ("a || || b", 4, "missing"),
        ("a | b", 2, r"write \|\|"),
        ("a ||| b", 4, r"write \|\|"),
        ("a || *", 5, "stands alone"),
        ("a || x\ud800", 6, "half a character"),
        ("a" * (LENGTH_MAX + 1), LENGTH_MAX, "4,096"),
        ("||".join(f"t{n}" for n in range(TAGS_MAX + 1)), None, "256 tags"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, position: int | None, says: str) -> None:
    """R9"""
    with pytest.raises(BadFilter, match=says) as raised:
        TagFilter.parse(text)

    if position is not None:
        assert raised.value.details["position"] == position


@settings(max_examples=150, deadline=None)
@given(
    found=st.lists(tags, min_size=1, max_size=40),
    wanted=st.lists(st.sampled_from(WORDS), min_size=1),
)
def test_rows_with_a_wanted_tag_are_kept(found: list[str | None], wanted: list[str]) -> None:
    """R9"""
    batch = tagged(found)
    filter = a_filter(" || ".join(wanted))
    right = [row for row, tag in enumerate(found) if tag in wanted]

    assert spread(filter.rows(BatchView(batch))) == right
    if right:
        assert filter.may_match(check_incoming(batch).tag_bloom)


def test_a_batch_that_matches_as_a_whole_is_one_range() -> None:
    assert a_filter("a||b").rows(BatchView(tagged(["a", "b"] * 500))) == [(0, 1000)]


def test_a_batch_without_tags_matches_nothing() -> None:
    assert a_filter("a").rows(BatchView(tagged([None, None]))) == []
    assert not a_filter("a").may_match(0)


def test_a_cut_batch_is_filtered_by_the_tags_of_its_own_rows() -> None:
    smaller = cut(tagged(["a", "b", "a", "b"]), 1, 2)
    first, view = smaller.first_row, BatchView(smaller.batch)

    assert [row + first for row in spread(a_filter("b").rows(view))] == [1]
    assert spread(a_filter("a").rows(view)) == []


def test_a_bloom_with_half_of_a_tags_bits_cannot_match() -> None:
    bits = tag_bit(b"vip")
    one = bits & -bits

    assert a_filter("vip").may_match(bits | 1)
    assert one != bits
    assert not a_filter("vip").may_match(one)


def test_a_code_outside_the_dictionary_is_corrupt() -> None:
    batch = tagged(["a", "b"])
    offset = BatchView(batch).parts()[Column.TAG, ColumnPart.VALUES][0]
    batch[offset] = 9

    with pytest.raises(Corrupt):
        a_filter("a").rows(BatchView(batch))


@given(flags=st.lists(st.booleans()))
def test_runs_cover_exactly_the_chosen_rows(flags: list[bool]) -> None:
    ranges = runs(bytes(flags))

    assert spread(ranges) == [row for row, flag in enumerate(flags) if flag]
    assert all(ranges[at][1] < ranges[at + 1][0] for at in range(len(ranges) - 1))
