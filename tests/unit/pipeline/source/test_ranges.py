"""A repeated batch has the same tasks; every row is in exactly one."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.pipeline.positions import TopicPlace
from ternmq.pipeline.source.ranges import Range, limited, split, weighed

A, B = TopicPlace("orders", "main"), TopicPlace("tiny", "main")
ranges = st.lists(
    st.builds(
        lambda n, first, rows: Range(TopicPlace(f"t{n}", "main"), first, first + rows),
        st.integers(0, 1_000_000),
        st.integers(0, 10_000),
        st.integers(0, 100_000),
    ),
    max_size=8,
    unique_by=lambda each: each.place,
)


@settings(deadline=None)
@given(ranges=ranges, rows_max=st.integers(0, 50_000), at_least=st.integers(0, 20))
def test_tasks_cover_every_row_once_whatever_the_order(
    ranges: list[Range], rows_max: int, at_least: int
) -> None:
    tasks = split(ranges, rows_max=rows_max, at_least=at_least)

    assert tasks == split(ranges[::-1], rows_max=rows_max, at_least=at_least)
    for place, first, end in ranges:
        own = [task for task in tasks if task.place == place]
        assert sum(task.rows for task in own) == end - first
        at = first
        for task in own:
            assert task.first == at
            at = task.end
    if rows_max:
        assert all(task.rows <= rows_max for task in tasks)


def test_there_are_at_least_as_many_tasks_as_asked_for() -> None:
    assert len(split([Range(A, 0, 1_000)], at_least=7)) >= 7


def test_a_limit_is_shared_by_what_waits_and_starves_nobody() -> None:
    ends = limited({A: 0, B: 5}, {A: 1_000_000, B: 6}, 1_000)

    assert ends[B] == 6
    assert 0 < ends[A] <= 1_000


def test_what_fits_the_limit_is_read_whole() -> None:
    assert limited({A: 10}, {A: 20}, 10) == {A: 20}


def test_bytes_are_shared_and_what_one_does_not_need_the_others_get() -> None:
    sizes = {A: 10, B: 1}
    asked: list[tuple[TopicPlace, int]] = []

    def weigh(place: TopicPlace, first: int, end: int, size: int) -> tuple[int, int]:
        asked.append((place, size))
        rows = min(end - first, max(1, size // sizes[place]))
        return first + rows, rows * sizes[place]

    ends = weighed({A: 100}, {A: 200, B: 30}, 430, weigh)

    assert ends == {A: 140, B: 30}
    assert asked == [(B, 215), (A, 400)]
    assert weighed({A: 200, B: 30}, {A: 200, B: 30}, 1, weigh) == {A: 200, B: 30}
