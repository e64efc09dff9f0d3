"""Counts in buckets, since the start and lately."""

from ternmq.metrics.recent_histogram import SPAN_S, RecentHistogram

BOUNDS = (1.0, 10.0)


def test_what_took_exactly_a_bound_counts_below_it() -> None:
    seen = RecentHistogram(BOUNDS)
    for seconds, rows in ((0.5, 3), (1.0, 2), (1.1, 4), (11.0, 1)):
        seen.observe_at(seconds, rows, now=0.0)

    assert seen.counts() == [5, 4, 1]
    assert seen.buckets() == [("1.0", 5.0), ("10.0", 9.0), ("+Inf", 10.0)]
    assert seen.total == 0.5 * 3 + 1.0 * 2 + 1.1 * 4 + 11.0


def test_lately_is_this_span_and_the_one_before_and_no_more() -> None:
    seen = RecentHistogram(BOUNDS)
    seen.observe_at(0.5, 1, now=0.0)
    seen.observe_at(5.0, 2, now=SPAN_S)

    assert seen.lately(SPAN_S) == [1, 2, 0]
    assert seen.lately(2 * SPAN_S) == [0, 2, 0]
    assert seen.lately(9 * SPAN_S) == [0, 0, 0]
    assert seen.counts() == [1, 2, 0], "ever is ever"


def test_a_rest_of_many_spans_leaves_nothing_of_before() -> None:
    seen = RecentHistogram(BOUNDS)
    seen.observe_at(0.5, 1, now=0.0)
    seen.observe_at(0.5, 1, now=5 * SPAN_S)

    assert seen.lately(5 * SPAN_S) == [1, 0, 0]


def test_sums_of_several_are_of_what_they_ever_saw() -> None:
    one, other = RecentHistogram(BOUNDS), RecentHistogram(BOUNDS)
    one.observe_at(0.5, 1, now=0.0)
    other.observe_at(20.0, 2, now=0.0)
    one.add(other)

    assert one.counts() == [1, 0, 2]
    assert one.total == 40.5
