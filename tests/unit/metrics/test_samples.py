"""Histograms and samples: what is counted where."""

import pytest

from ternmq.metrics.histogram import Histogram
from ternmq.metrics.samples import Samples
from ternmq.metrics.table import BY_NAME, METRICS


def test_a_bucket_holds_everything_up_to_its_bound() -> None:
    histogram = Histogram((0.1, 1.0))

    for seconds in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(seconds)
    histogram.observe(1.0, times=3)

    assert histogram.buckets() == [("0.1", 2.0), ("1.0", 6.0), ("+Inf", 7.0)]
    assert histogram.total == pytest.approx(10.65)


def test_equal_labels_are_added_up_and_of_ages_the_oldest_counts() -> None:
    samples = Samples()

    samples.add("tern_group_members", 2, "orders", "g", "topic")
    samples.add("tern_group_members", 3, "orders", "g", "topic")
    samples.highest("tern_group_backlog_seconds", 2.5, "orders", "g", "topic")
    samples.highest("tern_group_backlog_seconds", 1.0, "orders", "g", "topic")

    assert samples.values["tern_group_members"] == {("orders", "g", "topic"): 5}
    assert samples.values["tern_group_backlog_seconds"] == {("orders", "g", "topic"): 2.5}


def test_a_figure_with_other_labels_than_the_table_says_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="other labels"):
        Samples().add("tern_group_members", 1, "orders")


def test_names_say_their_unit_and_whether_they_only_grow() -> None:
    assert len(BY_NAME) == len(METRICS)
    assert all(metric.name.startswith("tern_") for metric in METRICS)
    growing = {metric.name for metric in METRICS if metric.kind == "counter"}
    assert growing == {name for name in BY_NAME if name.endswith("_total")}
    timed = {metric.name for metric in METRICS if metric.kind == "histogram"}
    assert all(name.endswith("_seconds") for name in timed)
